package keeperapi

import (
	"fmt"
	"net/url"
	"strconv"
)

// Parameters of PathLive.
const (
	// QueryFrom is the offset of the first byte.
	QueryFrom = "from"
	// QueryNewest set to "1" skips records that would be sent late.
	QueryNewest = "newest"
	// QueryRing goes on with the following files of a ring. It is LiveQuery.Passed.
	QueryRing = "ring"
)

// LiveQuery says from where on a growing file is read, and how.
type LiveQuery struct {
	// From is the offset of the first byte.
	From int64
	// Newest skips records that would be sent late.
	Newest bool
	// Ring goes on with the following files of a ring. Passed is then how many of the capture's packets are before From: those that
	// the reader has, and those that it was told it lacks. A reader that has none starts with the oldest file.
	Ring   bool
	Passed uint64
}

// Values returns q as the parameters of a request.
func (q LiveQuery) Values() url.Values {
	v := url.Values{QueryFrom: {strconv.FormatInt(q.From, 10)}}
	if q.Newest {
		v.Set(QueryNewest, "1")
	}
	if q.Ring {
		v.Set(QueryRing, strconv.FormatUint(q.Passed, 10))
	}
	return v
}

// ParseLiveQuery reads the parameters of a request. Without an offset it is the first byte. Errors are for the user.
func ParseLiveQuery(v url.Values) (LiveQuery, error) {
	q := LiveQuery{Newest: v.Get(QueryNewest) == "1", Ring: v.Has(QueryRing)}
	if text := v.Get(QueryFrom); text != "" {
		from, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			return q, fmt.Errorf("%s: write the number of the first byte", QueryFrom)
		}
		q.From = int64(from)
	}
	if q.Ring {
		passed, err := strconv.ParseUint(v.Get(QueryRing), 10, 63)
		if err != nil {
			return q, fmt.Errorf("%s: write the number of packets before the first byte", QueryRing)
		}
		q.Passed = passed
	}
	return q, nil
}
