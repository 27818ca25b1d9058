package capture

import (
	"strings"

	"github.com/sonde-operator/sonde/internal/cli/gather"
)

// brokenStream is how HTTP/2 says that the API server's way to the operator ended in the middle of an answer; its
// error has no exported type in net/http.
const brokenStream = "stream error: stream ID "

// noCounts is why no live counts come, in a user's terms: without HTTP/2's words for an operator that restarts.
func noCounts(text string) string {
	if strings.Contains(text, brokenStream) {
		return "the connection broke, as when the operator restarts; the counts come back by themselves"
	}
	return plain(text)
}

// plain is an error's text without the webhooks' paths, which are secrets of the operator.
func plain(text string) string {
	return gather.WebhookPath.ReplaceAllString(text, "/...")
}
