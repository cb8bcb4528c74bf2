package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseYAML reads a configuration file. Names may be written whole or as nested
// maps, which are joined with dots:
//
//	log.retention.ms: 7d
//	moonmq:
//	  max.deliveries: 5
//	listeners:
//	  - {name: PLAINTEXT, bind: "127.0.0.1:9092", advertise: "localhost:9092"}
//	  - {name: OUTSIDE, bind: "0.0.0.0:9093", security: SSL}
//
// It reports everything it does not understand; what it does is returned
// nevertheless, so that its values are checked in the same run.
func parseYAML(path string, text []byte) ([]Raw, Problems) {
	y := yamlReader{path: path, seen: map[string]int{}}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil // an empty file
	case err != nil:
		return nil, Problems{y.syntax(err)}
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		y.refuse(document.Line, "only one document is read")
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		if root.Tag != "!!null" {
			y.refuse(root.Line, "settings expected, as key: value")
		}
		return nil, y.problems
	}
	y.mapping("", root, 0)
	return y.raw, y.problems
}

type yamlReader struct {
	path     string
	raw      []Raw
	seen     map[string]int // line by name
	problems Problems
}

func (y *yamlReader) refuse(line int, format string, args ...any) {
	y.problems = append(y.problems, fmt.Sprintf("%s:%d: %s", y.path, line, fmt.Sprintf(format, args...)))
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// syntax moves the library's line number to where ours stand.
func (y *yamlReader) syntax(err error) string {
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Sprintf("%s:%s: %s", y.path, m[1], strings.TrimPrefix(err.Error(), m[0]))
	}
	return fmt.Sprintf("%s: %s", y.path, err)
}

// yamlDepth bounds nesting; no name has more parts than this.
const yamlDepth = 12

func (y *yamlReader) mapping(prefix string, node *yaml.Node, depth int) {
	if depth > yamlDepth {
		y.refuse(node.Line, "nested too deeply")
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := prefix + key.Value
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if first, ok := y.seen[name]; ok && value.Kind != yaml.MappingNode {
			y.refuse(key.Line, "%s is already set in line %d", name, first)
			continue
		}
		y.seen[name] = key.Line
		y.value(name, key.Line, value, depth)
	}
}

func (y *yamlReader) value(name string, line int, value *yaml.Node, depth int) {
	switch {
	case value.Kind == yaml.MappingNode:
		y.mapping(name+".", value, depth+1)
	case name == "listeners" && value.Kind == yaml.SequenceNode && hasMapping(value):
		y.listeners(line, value)
	case value.Kind == yaml.SequenceNode:
		var items []string
		for _, item := range value.Content {
			if item.Kind != yaml.ScalarNode {
				y.refuse(item.Line, "%s: a list of plain values expected", name)
				return
			}
			items = append(items, item.Value)
		}
		y.add(name, strings.Join(items, ","), line)
	case value.Tag == "!!null":
		y.refuse(line, "%s has no value", name)
	default:
		y.add(name, value.Value, line)
	}
}

func (y *yamlReader) add(name, value string, line int) {
	y.raw = append(y.raw, Raw{name, value, fmt.Sprintf("%s:%d", y.path, line)})
}

func hasMapping(list *yaml.Node) bool {
	return len(list.Content) > 0 && list.Content[0].Kind == yaml.MappingNode
}

// listeners reads the structured form and writes Kafka's three settings, or
// ours for a MoonMQ listener.
func (y *yamlReader) listeners(line int, list *yaml.Node) {
	var bound, advertised, protocols []string
	for i, item := range list.Content {
		if item.Kind != yaml.MappingNode {
			y.refuse(item.Line, "listeners: {name, bind, advertise, protocol, security} expected")
			continue
		}
		fields := map[string]string{"name": "L" + strconv.Itoa(i+1), "protocol": "kafka", "security": "PLAINTEXT"}
		for f := 0; f+1 < len(item.Content); f += 2 {
			key, value := item.Content[f], item.Content[f+1]
			switch key.Value {
			case "name", "bind", "advertise", "protocol", "security":
				fields[key.Value] = value.Value
			default:
				y.refuse(key.Line, "listeners: unknown field %q; name, bind, advertise, protocol and security are known", key.Value)
			}
		}
		switch {
		case fields["bind"] == "":
			y.refuse(item.Line, "listeners: bind is missing")
		case fields["protocol"] == "moonmq":
			y.add("moonmq.listen", fields["bind"], item.Line)
		case fields["protocol"] == "kafka":
			name := strings.ToUpper(fields["name"])
			bound = append(bound, name+"://"+fields["bind"])
			protocols = append(protocols, name+":"+fields["security"])
			if a := fields["advertise"]; a != "" {
				advertised = append(advertised, name+"://"+a)
			}
		default:
			y.refuse(item.Line, "listeners: protocol %q is neither kafka nor moonmq", fields["protocol"])
		}
	}
	if len(bound) > 0 {
		y.add("listeners", strings.Join(bound, ","), line)
		y.add("listener.security.protocol.map", strings.Join(protocols, ","), line)
	}
	if len(advertised) > 0 {
		y.add("advertised.listeners", strings.Join(advertised, ","), line)
	}
}
