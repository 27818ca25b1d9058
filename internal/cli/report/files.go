package report

import (
	"errors"
	"fmt"

	"github.com/sonde-operator/sonde/internal/cli/capture"
)

// fileProblems has one sentence for each file that is missing or differs. Files with the same cause, like a right that
// the user lacks, share one.
func fileProblems(files []capture.SavedFile) []string {
	var order []string
	same := map[string][]capture.SavedFile{}
	for _, f := range files {
		cause := f.Err.Error()
		if inner := errors.Unwrap(f.Err); inner != nil { // without the name of the file
			cause = inner.Error()
		}
		if same[cause] == nil {
			order = append(order, cause)
		}
		same[cause] = append(same[cause], f)
	}
	var problems []string
	for _, cause := range order {
		first, more := same[cause][0], len(same[cause])-1
		if more == 0 {
			problems = append(problems, fmt.Sprintf("%s: %v", first.Pod.Name, first.Err))
			continue
		}
		problems = append(problems, fmt.Sprintf("%d files were not saved: %s (%s of %s and %d more)", more+1, cause, first.Name, first.Pod.Name, more))
	}
	return problems
}
