package tracefmt

// members calls each for every member of an object, which must be valid JSON. The key is unescaped, the value is not.
func members(object []byte, each func(key, value []byte) error) error {
	i := skipBlank(object, 1)
	for object[i] != '}' {
		end := valueEnd(object, i)
		key, err := text(object[i:end])
		if err != nil {
			return err
		}
		i = skipBlank(object, end) // the colon
		i = skipBlank(object, i+1)
		end = valueEnd(object, i)
		if err := each(key, object[i:end]); err != nil {
			return err
		}
		i = skipBlank(object, end)
		if object[i] == ',' {
			i = skipBlank(object, i+1)
		}
	}
	return nil
}

func skipBlank(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r' {
		i++
	}
	return i
}

// valueEnd returns the index after the value that begins at i.
func valueEnd(b []byte, i int) int {
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
	default:
		for i < len(b) {
			switch b[i] {
			case ',', '}', ']', ' ', '\t', '\n', '\r':
				return i
			}
			i++
		}
		return i
	}
	for depth := 0; ; {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		i++
		if depth == 0 {
			return i
		}
	}
}

func stringEnd(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}
