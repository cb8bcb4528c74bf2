package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A rule is what a value must satisfy beyond its type. check gets canonical
// text of the key's type and returns the reason for a refusal, in Kafka's
// words, or "".
type rule struct {
	text  string
	check func(value string) string
	// culprit, if set, finds the item of a list that check refused.
	culprit func(value string) (item string, found bool)
}

// shown is the refused value as Kafka prints it.
func (r rule) shown(k *Key, value string) string {
	switch {
	case r.culprit != nil:
		item, _ := r.culprit(value)
		return item
	case k.Type == List:
		return "[" + strings.Join(SplitList(value), ", ") + "]"
	}
	return value
}

func atLeast(low int64) rule {
	return rule{text: fmt.Sprintf("≥ %d", low), check: func(v string) string {
		if number(v) < float64(low) {
			return fmt.Sprintf("Value must be at least %d", low)
		}
		return ""
	}}
}

func between(low, high int64) rule {
	return rule{text: fmt.Sprintf("%d … %d", low, high), check: func(v string) string {
		switch n := number(v); {
		case n < float64(low):
			return fmt.Sprintf("Value must be at least %d", low)
		case n > float64(high):
			return fmt.Sprintf("Value must be no more than %d", high)
		}
		return ""
	}}
}

func fraction() rule {
	return rule{text: "0 … 1", check: between(0, 1).check}
}

// oneOf is an enumeration. For a list every item must be one of the values.
func oneOf(values ...string) rule {
	return rule{text: strings.Join(values, ", "), check: func(v string) string {
		if !slices.Contains(values, v) {
			return "String must be one of: " + strings.Join(values, ", ")
		}
		return ""
	}}
}

func eachOneOf(values ...string) rule {
	each := oneOf(values...)
	culprit := func(v string) (string, bool) {
		for _, item := range SplitList(v) {
			if each.check(item) != "" {
				return item, true // also the empty one, of "a,"
			}
		}
		return "", false
	}
	return rule{text: "list of: " + each.text, culprit: culprit, check: func(v string) string {
		if item, found := culprit(v); found {
			return each.check(item)
		}
		return ""
	}}
}

// betweenOr is a range with one special value outside of it.
func betweenOr(special, low, high int64) rule {
	return rule{text: fmt.Sprintf("%d or %d … %d", special, low, high), check: func(v string) string {
		if n := number(v); n != float64(special) && (n < float64(low) || n > float64(high)) {
			return fmt.Sprintf("Value must be between %d and %d or equal to %d", low, high, special)
		}
		return ""
	}}
}

func nonEmpty() rule {
	return rule{text: "not empty", check: func(v string) string {
		if v == "" {
			return "String must be non-empty"
		}
		return ""
	}}
}

// throttledReplicas is the form of the replication throttle list of a name.
func throttledReplicas(name string) rule {
	reason := name + " must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
	return rule{text: "* or partition:broker,…", check: func(v string) string {
		if v == "" || v == "*" {
			return ""
		}
		for _, item := range SplitList(v) {
			partition, broker, ok := strings.Cut(item, ":")
			if !ok {
				return reason
			}
			if _, err := strconv.ParseUint(partition, 10, 31); err != nil {
				return reason
			}
			if _, err := strconv.ParseUint(broker, 10, 31); err != nil {
				return reason
			}
		}
		return ""
	}}
}

// ipCounts is the form of max.connections.per.ip.overrides.
func ipCounts() rule {
	return rule{text: "host:count,…", check: func(v string) string {
		if _, err := parseIPCounts(v); err != nil {
			return err.Error()
		}
		return ""
	}}
}

// parseIPCounts reads "host:count,host:count".
func parseIPCounts(text string) (map[string]int, error) {
	counts := map[string]int{}
	for _, item := range SplitList(text) {
		colon := strings.LastIndexByte(item, ':')
		if colon <= 0 {
			return nil, fmt.Errorf("%q is not host:count", item)
		}
		n, err := strconv.ParseUint(item[colon+1:], 10, 31)
		if err != nil {
			return nil, fmt.Errorf("%q is not host:count", item)
		}
		counts[strings.Trim(item[:colon], "[]")] = int(n)
	}
	return counts, nil
}

// number reads canonical text of a numeric type; other text is below any bound.
func number(v string) float64 {
	n, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return math.Inf(-1)
	}
	return n
}

// SplitList cuts a list value into its items, without blanks around them.
// Empty text is the empty list.
func SplitList(v string) []string {
	if strings.TrimSpace(v) == "" {
		return nil
	}
	items := strings.Split(v, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}
