package capture

import (
	"strings"

	"github.com/sonde-operator/sonde/internal/cli/gather"
)

// http2StreamError begins the text of the error of net/http when the connection to the operator ended within a
// response. The error's type is not exported.
const http2StreamError = "stream error: stream ID "

// explainProgressError returns why there are no live counts, without the jargon of HTTP/2.
func explainProgressError(text string) string {
	if strings.Contains(text, http2StreamError) {
		return "the connection was lost, for example because the operator restarted; the plugin reconnects"
	}
	return plain(text)
}

// plain removes the webhooks' paths from an error's text; they are secrets of the operator.
func plain(text string) string {
	return gather.WebhookPath.ReplaceAllString(text, "/...")
}
