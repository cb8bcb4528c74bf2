package main

import (
	"strings"
	"testing"
	"time"
)

// What goes in comes out, however it is written and printed.
func TestProduceAndConsumeFormats(t *testing.T) {
	year := time.Now().UTC().Format("2006")
	for _, tc := range []struct {
		name             string
		stdin            string
		produce, consume string // flags
		want             string
	}{
		{"lines", "one\n\ntwo", "", "", "one\n\ntwo\n"},
		{"keys before a separator", "a::1:2\nnone\n", "-K ::", "-f %k=%v;", "a=1:2;=none;"},
		{"one key and headers for all", "v\n", "-k key -H a=1 -H b=x=y", `-f %k\t%h\n`, "key\ta=1,b=x=y\n"},
		{"headers one by one", "v\n", "-H a=1 -H b=2", `-f %H:%h{<%k|%v>}\n`, "2:<a|1><b|2>\n"},
		{"a format", "k1 v1\nk2 v 2\n", `-f %k\x20%v\n`, `-f %k|%v,`, "k1|v1,k2|v 2,"},
		{"a format without its last newline", "k1=v1\nk2=v2", `-f %k=%v`, `-f %k%%%v;`, "k1%v1;k2%v2;"},
		{"records of several lines", "a\nb--c--", `-f %v--`, `-f [%v]`, "[a\nb][c]"},
		{"a prefix", "<1><2>", `-f <%v>`, "", "1\n2\n"},
		{"hex and base64", "00ff aGk=\n", `-f %k{hex}\x20%v{base64}\n`, `-f %k{hex}:%v{hex}:%v{base64}\n`, "00ff:6869:aGk=\n"},
		{"times", "1700000000123 x\n", `-f %T\x20%v\n`, `-f %T_%d_%d{rfc3339}_%d{2006}\n`, "1700000000123_1700000000123_2023-11-14T22:13:20.123Z_2023\n"},
		{"dates", "2023-11-14 x\n", `-f %d\x20%v\n`, `-f %d{2006-01}\n`, "2023-11\n"},
		{"headers in the input", "a=1,b=2 x\n", `-f %h\x20%v\n`, `-f %h/%v\n`, "a=1,b=2/x\n"},
		{"lengths of null and empty", "a:\n:\n", "-K : -Z", `-f %K.%S.%V\n`, "1.-1.-1\n0.-1.-1\n"},
		{"empty values stay empty", "\n", "", `-f %K.%S\n`, "-1.0\n"},
		{"position", "x\ny\n", "-p 0", `-f %t/%p/%o/%e\n`, "t/0/0/0\nt/0/1/0\n"},
		{"kcat's length", "xy\n", "", `-f %R`, "\x00\x00\x00\x02"},
		{"rpk's tokens", "a\nbb\n", "-z none", `-f %i:%V{hex8}:%s{base64raw}:%a{compression}:%d{strftime[%Y]}{%{%}\n`, "1:01:YQ:none:" + year + "{{}\n2:02:YmI:none:" + year + "{{}\n"},
		{"lengths in headers", "v\n", "-H a=12", `-f %h{%K%V}\n`, "12\n"},
		{"a layout read and written", "14.11.2023 x\n", `-f %d{02.01.2006}\x20%v\n`, `-f %d{2006-01-02}\n`, "2023-11-14\n"},
		{"idempotence", "x\n", "", `-f %y\n`, "0\n"},
		{"no idempotence", "x\n", "--acks 1", `-f %x%y\n`, "-1-1\n"},
		{"gzip", "x\n", "-z gzip", "", "x\n"}, {"snappy", "x\n", "-z snappy", "", "x\n"}, {"lz4", "x\n", "-z lz4", "", "x\n"},
		{"zstd", "x\n", "-z zstd", "", "x\n"}, {"none", "x\n", "-z none", "", "x\n"},
		{"json", `{"key":"k","value":null,"timestamp":5,"headers":[{"key":"h","value":"/w==","encoding":"base64"}]}` + "\n\n", "-f json", "-f json",
			`{"topic":"t","partition":0,"offset":0,"timestamp":5,"key":"k","value":null,"headers":[{"key":"h","value":"/w==","encoding":"base64"}]}` + "\n"},
		{"bytes in json", "\x00\xff\n", "-f %v\\n", "-f %t -n 1", "t"},
		{"metadata", "5 k vv\n", `-f %T\x20%k\x20%v\n`, "--meta-only", "t 0 0 5\n"},
		{"metadata in json", "5 k vv\n", `-f %T\x20%k\x20%v\n`, "--meta-only -f json",
			`{"topic":"t","partition":0,"offset":0,"timestamp":5,"key_size":1,"value_size":2}` + "\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newShell(t, "t")
			s.input(tc.stdin, append([]string{"produce", "t"}, strings.Fields(tc.produce)...)...)
			equal(t, s.run(append([]string{"consume", "t", "-e"}, strings.Fields(tc.consume)...)...), tc.want)
		})
	}
}

func TestJSONCopiesATopic(t *testing.T) {
	s := newShell(t, "from", "to")
	s.input("1000 k\x00\xfe:v1\n2000 k2:\n", "produce", "from", "-f", `%T %k:%v\n`)
	copied := s.run("consume", "from", "-e", "-f", "json")
	s.input(copied, "produce", "to", "-f", "json")
	equal(t, strings.ReplaceAll(s.run("consume", "to", "-e", "-f", "json"), `"to"`, `"from"`), copied)
	s.input(copied, "produce", "-f", "json")
	equal(t, s.run("consume", "from", "-o", "2", "-e", "-f", `%o\n`), "2\n3\n")
}

func TestProduceReports(t *testing.T) {
	s := newShell(t, "t")
	equal(t, s.input("5 a\n5 b\n", "produce", "t", "-f", `%T %v\n`, "-o", `%t/%p@%o\n`), "t/0@0\nt/0@1\n")
	equal(t, s.input("5 a\n", "produce", "t", "-f", `%T %v\n`, "-o", "json"),
		`{"topic":"t","partition":0,"offset":2,"timestamp":5,"key_size":-1,"value_size":1}`+"\n")
}

func TestProduceReadErrors(t *testing.T) {
	s := newShell(t, "t")
	for _, tc := range []struct{ stdin, flags, words string }{
		{"not json\n", "-f json", "read record 1: read JSON record: "},
		{`{"value":"?","value_encoding":"base64"}`, "-f json", "read record 1: read JSON record: illegal base64"},
		{`{"value":"?","value_encoding":"rot13"}`, "-f json", `unknown encoding "rot13"`},
		{"x y\n", `-f %p\x20%v\n`, `read record 1: "x" is not a partition`},
		{"x y\n", `-f %T\x20%v\n`, `read record 1: "x" is not a number of milliseconds`},
		{"a b\nc", `-f %k\x20%v\n`, "read record 2: unexpected EOF"},
		{"[a]\n(b)\n", `-f [%v]\n`, `read record 2: input has "(" where the format has "["`},
		{"zz\n", `-f %v{hex}\n`, "read record 1: encoding/hex: "},
	} {
		r := s.try(tc.stdin, append([]string{"produce", "t"}, strings.Fields(tc.flags)...)...)
		if r.code != exitFailed || !strings.Contains(r.err, tc.words) {
			t.Errorf("%q %s: exit code %d, want %q in %s", tc.stdin, tc.flags, r.code, tc.words, r.err)
		}
	}
}

// A record the broker refuses is one line, and the others are written.
func TestProducePartialFailure(t *testing.T) {
	s := newShell(t)
	s.run("topic", "create", "t", "-p", "1", "--replication-factor", "1")
	r := s.try("0 a\n7 b\n0 c\n", "produce", "t", "-f", `%p %v\n`, "--timeout", "2s")
	if r.code != exitFailed || strings.Count(r.err, "\n") != 1 || !strings.HasPrefix(r.err, "perigee: record 2: ") {
		t.Fatalf("exit code %d: %s", r.code, r.err)
	}
	equal(t, s.run("consume", "t", "-e"), "a\nc\n")
}

func TestConsumeWhere(t *testing.T) {
	s := newShell(t, "t")
	s.input("1000 0\n2000 1\n3000 2\n4000 3\n5000 4\n", "produce", "t", "-f", `%T %v\n`)
	for _, tc := range []struct{ offset, want string }{
		{"start", "01234"}, {"end", ""}, {"3", "34"}, {"+1", "1234"}, {"-2", "34"}, {"-9", "01234"}, {"9", ""}, {"@1970-01-01T00:00:02.5Z", "234"}, {"@2100-01-01", ""},
	} {
		equal(t, s.run("consume", "t", "-e", "-o", tc.offset, "-f", "%v"), tc.want)
	}
	equal(t, s.run("consume", "t", "-n", "2", "-f", "%v"), "01")
}

func TestConsumeSeveralTopicsAndPartitions(t *testing.T) {
	s := newShell(t, "a1", "a2", "b1")
	s.run("topic", "create", "a3", "-p", "3", "--replication-factor", "1")
	for _, topic := range []string{"a1", "a2", "b1"} {
		s.input(topic+"\n", "produce", topic)
	}
	s.input("0 x\n1 y\n2 z\n", "produce", "a3", "-f", `%p %v\n`)
	count := func(words ...string) int {
		return strings.Count(s.run(append([]string{"consume", "-e"}, words...)...), "\n")
	}
	for _, tc := range []struct {
		line string
		want int
	}{{"a1 b1", 2}, {"-r a[12]", 2}, {"-r .*", 6}, {"-r a", 0}, {"a3", 3}, {"a3 -p 0,2", 2}} {
		if got := count(strings.Fields(tc.line)...); got != tc.want {
			t.Errorf("consume %s: %d records, want %d", tc.line, got, tc.want)
		}
	}
	s.fail(exitFailed, "perigee: a3/9: ", "consume", "a3", "-p", "9", "-e")
}

func TestConsumeFilters(t *testing.T) {
	s := newShell(t, "t")
	s.input(`a {"n":1,"s":{"t":"red"},"l":[5,{"x":true}]}`+"\n"+
		`ab {"n":20,"big":9007199254740993}`+"\n"+
		"b not json\n", "produce", "t", "-f", `%k %v\n`, "-H", "from=test")
	for _, tc := range []struct{ filters, want string }{
		{"key=a", "0"}, {"key!=a", "12"}, {"key~^a", "01"}, {"key!~^a", "2"}, {"key*=b", "12"},
		{"value*=json", "2"}, {"value.s.t=red", "0"}, {"value.n>1", "1"}, {"value.n>=1", "01"}, {"value.n<2", "0"}, {"value.n<=20", "01"},
		{"value.l.1.x=true", "0"}, {"value.l.7=1", ""}, {"value.big=9007199254740993", "1"}, {"value.n!=1", "12"},
		{"header.from=test", "012"}, {"header.to=test", ""}, {"offset>=1 key~b", "12"}, {"partition=0 offset<2", "01"}, {"topic=u", ""},
	} {
		args := []string{"consume", "t", "-e", "-f", "%o"}
		for f := range strings.FieldsSeq(tc.filters) {
			args = append(args, "-F", f)
		}
		if got := s.run(args...); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.filters, got, tc.want)
		}
	}
}

// A transaction is there as a whole or not at all, and its marker can be shown.
func TestTransactions(t *testing.T) {
	s := newShell(t, "t")
	s.input("a\nb\n", "produce", "t", "--txn", "x")
	r := s.try("c\n{", "produce", "t", "--txn", "x", "-f", "json")
	if r.code != exitFailed || !strings.Contains(r.err, "read record 1") {
		t.Fatalf("exit code %d: %s", r.code, r.err)
	}
	equal(t, s.run("consume", "t", "-e", "--read-committed"), "a\nb\n")
	marker := s.run("consume", "t", "-e", "--print-control-records", "-f", "json", "--meta-only", "-o", "2")
	if !strings.Contains(marker, `"offset":2,`) || !strings.Contains(marker, `"control":"commit"`) {
		t.Fatal(marker)
	}
}

// What was aborted cannot be seen, and consume -e does not wait for it.
func TestConsumeEndsBehindAbortedRecords(t *testing.T) {
	s := newShell(t, "t")
	s.input("a\n", "produce", "t")
	r := s.try(`{"value":"d"}`+"\n{", "produce", "t", "--txn", "x", "-f", "json")
	if r.code != exitFailed {
		t.Fatalf("exit code %d: %s", r.code, r.err)
	}
	equal(t, s.run("consume", "t", "-e", "--read-committed"), "a\n")
	equal(t, s.run("consume", "t", "-e"), "a\nd\n")
}
