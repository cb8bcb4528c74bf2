package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// jvmLimit is for one run of a JVM tool: a start takes two seconds on an idle machine.
const jvmLimit = 3 * time.Minute

var fetchJars = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("PERIGEE_E2E_JARS"); dir != "" {
		return dir, nil
	}
	dir := filepath.Join(repoRoot(), "e2e", "java")
	jars := filepath.Join(dir, "jars")
	if found, _ := filepath.Glob(filepath.Join(jars, "kafka_*.jar")); len(found) > 0 {
		return jars, nil
	}
	cmd := exec.Command("mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars.part")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mvn: %w\n%s", err, out)
	}
	return jars, os.Rename(filepath.Join(dir, "jars.part"), jars)
})

// kafkaJars is a class path with Kafka's clients and tools. Without a JVM or
// Maven the test is skipped, and says so.
func kafkaJars(t testing.TB) string {
	t.Helper()
	for _, tool := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	jars, err := fetchJars()
	if err != nil {
		t.Skipf("Kafka's jars cannot be had: %v", err)
	}
	return filepath.Join(jars, "*")
}

// javaTool runs a main class of Kafka's jars to its end and returns its
// standard output.
func javaTool(t testing.TB, stdin, class string, args ...string) string {
	t.Helper()
	out, err := tryJavaTool(t, stdin, class, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryJavaTool(t testing.TB, stdin, class string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), jvmLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "java", append([]string{"-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", kafkaJars(t), class}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s\n%s", class, strings.Join(args, " "), err, tail(out.String(), 4<<10), tail(errs.String(), 4<<10))
	}
	return out.String(), nil
}
