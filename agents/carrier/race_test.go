//go:build race

package carrier

func init() { raced = true }
