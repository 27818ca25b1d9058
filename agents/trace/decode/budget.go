package decode

// Memory of what a Decoder remembers, in bytes: a target can open any number of files with long paths in any number of
// processes.
const (
	// maxNames bounds the names of open files and the working directories.
	maxNames = 24 << 20
	// maxPath bounds a path, as the kernel does for calls (PATH_MAX). A process can enter folders that lie deeper.
	maxPath = 4096
)

// budget is memory that may still be used, in bytes.
type budget struct {
	left int
	// refused counts the names for which no memory was left.
	refused uint64
}

// take takes memory, or gives some back; false if too little is left.
func (b *budget) take(n int) bool {
	if n > b.left {
		return false
	}
	b.left -= n
	return true
}

func (b *budget) give(n int) { b.left += n }
