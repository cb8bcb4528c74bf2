package e2e

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

func kcat(t *testing.T, addr, stdin string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("kcat"); err != nil {
		t.Skip("kcat is not installed")
	}
	cmd := exec.CommandContext(limited(t), "kcat", append([]string{"-b", addr, "-X", "broker.address.family=v4"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("kcat %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String()
}

func TestKcat(t *testing.T) {
	b := Start(t)
	topic := topicName("kcat")
	franz{}.CreateTopic(t, b.Kafka, topic, 1)
	offset := 0
	for _, codec := range allCodecs {
		kcat(t, b.Kafka, "k1:"+codec+"\nk2:second\n", "-P", "-t", topic, "-K:", "-z", codec, "-H", "codec="+codec, "-X", "acks=all")
		got := kcat(t, b.Kafka, "", "-C", "-t", topic, "-p", "0", "-o", fmt.Sprint(offset), "-e", "-q", "-f", `%o %k=%s %h\n`)
		want := fmt.Sprintf("%d k1=%s codec=%s\n%d k2=second codec=%s\n", offset, codec, codec, offset+1, codec)
		if got != want {
			t.Fatalf("%s: kcat read %q, want %q", codec, got, want)
		}
		offset += 2
	}
	if list := kcat(t, b.Kafka, "", "-L", "-t", topic); !strings.Contains(list, "1 partitions") {
		t.Errorf("kcat -L says:\n%s", list)
	}
	if q := kcat(t, b.Kafka, "", "-Q", "-t", topic+":0:-1"); !strings.Contains(q, fmt.Sprint(offset)) {
		t.Errorf("kcat -Q says %q, want offset %d", q, offset)
	}
	group := kcat(t, b.Kafka, "", "-G", topicName("gkcat"), "-X", "auto.offset.reset=earliest", "-c", fmt.Sprint(offset), "-q", "-f", `%k\n`, topic)
	if n := strings.Count(group, "\n"); n != offset {
		t.Errorf("the group read %d records, want %d", n, offset)
	}
}
