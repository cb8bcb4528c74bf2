package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// ValueError is a refused value. Its text is Kafka's, which tools look for.
type ValueError struct {
	Key, Value, Reason string
}

func (e *ValueError) Error() string {
	return fmt.Sprintf("Invalid value %s for configuration %s: %s", e.Value, e.Key, e.Reason)
}

// MaxValueBytes is the longest value that can be stored.
const MaxValueBytes = 1<<15 - 1

// Parse checks a value as the protocol carries it and returns its canonical
// text. Human units are not accepted here. The error is a *[ValueError].
func (k *Key) Parse(text string) (string, error) {
	value, reason := k.canonical(strings.TrimSpace(text))
	if len(value) > MaxValueBytes {
		text, reason = fmt.Sprintf("of %d bytes", len(text)), fmt.Sprintf("Value must not be longer than %d bytes", MaxValueBytes)
	}
	if reason == "" && k.rule.check != nil {
		if reason = k.rule.check(value); reason != "" {
			text = k.rule.shown(k, value)
		}
	}
	if reason == "" && k.Effect == Refused && value != k.Default {
		reason = "not supported by this broker"
	}
	if reason != "" {
		if k.Sensitive {
			text = "[hidden]"
		}
		return "", &ValueError{k.Name, text, reason}
	}
	return value, nil
}

// ParseHuman is [Key.Parse] for people: sizes and times may carry units.
func (k *Key) ParseHuman(text string) (string, error) {
	text = strings.TrimSpace(text)
	if _, err := strconv.ParseFloat(text, 64); err != nil && k.Unit != NoUnit {
		n, err := inUnit(text, k.Unit)
		if err != nil {
			return "", &ValueError{k.Name, text, err.Error()}
		}
		text = strconv.FormatInt(n, 10)
	}
	return k.Parse(text)
}

// canonical brings text of the key's type into the one form we keep.
func (k *Key) canonical(text string) (value, reason string) {
	switch k.Type {
	case Bool:
		switch strings.ToLower(text) {
		case "true":
			return "true", ""
		case "false":
			return "false", ""
		}
		return "", "Expected value to be either true or false"
	case Int, Short, Long:
		n, err := strconv.ParseInt(text, 10, map[Type]int{Int: 32, Short: 16, Long: 64}[k.Type])
		if err != nil {
			return "", "Not a number of type " + k.Type.String()
		}
		return strconv.FormatInt(n, 10), ""
	case Double:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || f != f {
			return "", "Not a number of type DOUBLE"
		}
		return formatDouble(f), ""
	case List:
		return strings.Join(SplitList(text), ","), ""
	}
	return text, ""
}

// formatDouble prints as Java does: 1 is "1.0", large powers are "1.5E10".
func formatDouble(f float64) string {
	s := strconv.FormatFloat(f, 'G', -1, 64)
	if !strings.ContainsAny(s, ".EIN") {
		s += ".0"
	}
	return strings.Replace(s, "E+", "E", 1)
}

// inUnit reads "7d" or "1GiB" and returns it in the given unit; it must be a
// whole number of them.
func inUnit(text string, unit Unit) (int64, error) {
	if unit == Bytes {
		n, err := humanize.ParseBytes(text)
		if err != nil || n > 1<<62 {
			return 0, fmt.Errorf("not a size such as 1048576, 512KiB or 1GiB")
		}
		return int64(n), nil
	}
	millis, err := parseMillis(text)
	if err != nil {
		return 0, err
	}
	if millis%unit.millis() != 0 {
		return 0, fmt.Errorf("not a whole number of %s", unit)
	}
	return millis / unit.millis(), nil
}

var durationUnits = []struct {
	name   string
	millis int64
}{{"ms", 1}, {"w", 7 * 86_400_000}, {"d", 86_400_000}, {"h", 3_600_000}, {"m", 60_000}, {"s", 1000}}

// parseMillis reads a sum such as "1h30m", "7d" or "1.5s". time.ParseDuration
// has neither days nor weeks.
func parseMillis(text string) (int64, error) {
	bad := fmt.Errorf("not a time such as 250ms, 30s, 1h30m or 7d")
	var total float64
	rest := text
	for rest != "" {
		digits := strings.IndexFunc(rest, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
		if digits <= 0 {
			return 0, bad
		}
		n, err := strconv.ParseFloat(rest[:digits], 64)
		if err != nil {
			return 0, bad
		}
		rest = rest[digits:]
		unit := -1
		for i, u := range durationUnits {
			if strings.HasPrefix(rest, u.name) {
				unit = i
				break
			}
		}
		if unit < 0 {
			return 0, bad
		}
		total += n * float64(durationUnits[unit].millis)
		rest = rest[len(durationUnits[unit].name):]
	}
	if text == "" || total != float64(int64(total)) || total > 1<<53 {
		return 0, bad
	}
	return int64(total), nil
}
