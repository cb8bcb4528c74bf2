package moonmq

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
)

// checkTopicName applies the protocol's rules, in its words.
func checkTopicName(name string) error {
	switch {
	case name == "":
		return fail(wire.Internal, "topic name must not be empty")
	case len(name) > wire.MaxTopicName:
		return fail(wire.Internal, fmt.Sprintf("topic name must be at most %d characters", wire.MaxTopicName))
	case name[0] == '-':
		return fail(wire.Internal, "topic name must not start with '-'")
	case name == "." || name == "..":
		return fail(wire.Internal, "topic name must not be '.' or '..'")
	case strings.ContainsFunc(name, func(r rune) bool { return !topicLetter(r) }):
		return fail(wire.Internal, "topic name may only contain letters, digits, '.', '_' and '-'")
	}
	return nil
}

func topicLetter(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
}

// reserved reports whether a name is the broker's: such topics are neither
// written nor read here.
func reserved(name string) bool { return strings.HasPrefix(name, "__") }

func missing(topic string) error {
	return fail(wire.TopicMissing, fmt.Sprintf("topic %s does not exist", topic))
}

// parseNumber reads what Lua takes for a number: decimal or hexadecimal, with or
// without a fraction or exponent, blanks around it.
func parseNumber(text string) (float64, bool) {
	s := strings.Trim(text, " \t\n\v\f\r")
	unsigned := strings.TrimLeft(s, "+-")
	if len(s)-len(unsigned) > 1 || strings.ContainsAny(unsigned, "_iInN") {
		return 0, false // no digit separators, no infinities
	}
	if hex := strings.ToLower(unsigned); strings.HasPrefix(hex, "0x") && !strings.Contains(hex, "p") {
		s += "p0" // Go wants an exponent on hexadecimal fractions
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(n, 0) {
		return 0, false
	}
	return n, true
}
