package layout

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```")
	// dropped from a heading in its anchor, as GitHub does.
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinks follows each relative link of the documentation to its file and its heading.
func TestLinks(t *testing.T) {
	root := filepath.Join("..", "..")
	links := 0
	for _, page := range pages(t, root) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			path, anchor, _ := strings.Cut(m[1], "#")
			to := page
			if path != "" {
				to = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: the link %s has no file", page, m[1])
			} else if anchor != "" && !anchors(read(t, to))[anchor] {
				t.Errorf("%s: the link %s has no heading", page, m[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("%d links were found, want the links of all pages", links)
	}
}

// pages returns the Markdown files of the root and of docs.
func pages(t *testing.T, root string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// anchors returns the anchors of a page's headings.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		title := link.ReplaceAllString(m[1], "")
		found[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(title), ""), " ", "-")] = true
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
