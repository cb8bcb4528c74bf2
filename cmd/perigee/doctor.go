package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/perigeemq/perigee/server"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/server/transport"
	"github.com/perigeemq/perigee/storage/vfs"
)

// finding is one thing the doctor looked at.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warn or fail
	Says   string `json:"says"`
}

// Statuses of a finding.
const (
	fine = "ok"
	warn = "warn"
	fail = "fail"
)

func newDoctorCommand(s *session) *cobra.Command {
	var f settingFlags
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look at what a broker with these settings needs, and at the one that runs",
		Long: `Check the settings, the data directory, the disk and how long a sync takes, the limit of
open files, the clock, the ports, and the addresses clients are told to connect to. If the broker
runs, it is asked over the wire as a client would. Nothing is changed but for a file that is
written and removed again. Exits with 1 if anything fails.`,
		Example: `  perigee doctor
  perigee doctor --config perigee.yaml --format json`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			out, err := s.output(c)
			if err != nil {
				return err
			}
			loaded, err := f.load()
			if err != nil {
				return err
			}
			return printFindings(out, diagnose(c.Context(), loaded))
		},
	}
	f.add(c.Flags())
	return c
}

func printFindings(out *output, findings []finding) error {
	t := table{header: []string{"CHECK", "STATUS", "FINDING"}}
	for _, f := range findings {
		t.add(f.Check, f.Status, f.Says)
	}
	if err := out.print(findings, t); err != nil {
		return err
	}
	if slices.ContainsFunc(findings, func(f finding) bool { return f.Status == fail }) {
		return errReported
	}
	return nil
}

// doctor collects findings about a broker with these settings.
type doctor struct {
	settings *config.Broker
	dir      string // absolute
	running  string // pid of the broker that has the directory, "" if none
	found    []finding
}

func diagnose(ctx context.Context, loaded *config.Loaded) []finding {
	d := &doctor{settings: loaded.Broker, dir: loaded.Broker.DataDir}
	if abs, err := filepath.Abs(d.dir); err == nil {
		d.dir = abs
	}
	d.say("settings", fine, "%d given, all others default", len(loaded.Static.Given()))
	for _, w := range loaded.Warnings {
		d.say("settings", warn, "%s", w)
	}
	d.dataDirectory()
	d.openFiles()
	d.clock()
	for _, l := range d.settings.Kafka {
		d.kafkaListener(ctx, l)
	}
	d.port("MOONMQ", d.settings.MoonMQ)
	d.port("HTTP", d.settings.HTTP)
	return d.found
}

func (d *doctor) say(check, status, format string, args ...any) {
	d.found = append(d.found, finding{check, status, fmt.Sprintf(format, args...)})
}

// dataDirectory looks at the directory, or at the one it would be made in.
func (d *doctor) dataDirectory() {
	const check = "data directory"
	at := d.dir
	entries, err := os.ReadDir(d.dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		for at != filepath.Dir(at) && errors.Is(err, os.ErrNotExist) {
			at = filepath.Dir(at)
			_, err = os.Stat(at)
		}
		d.say(check, fine, "%s does not exist yet and will be made", d.dir)
	case err != nil:
		d.say(check, fail, "%v", err)
		return
	case len(entries) == 0:
		d.say(check, fine, "%s is empty", d.dir)
	case !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "identity.json" }):
		d.say(check, fail, "%s holds %s and is not a data directory of perigee", d.dir, entries[0].Name())
		return
	default:
		d.holder()
		d.readers()
	}
	d.disk(at)
}

// readers warns when others on this machine can read the data.
func (d *doctor) readers() {
	if is, err := os.Stat(d.dir); err == nil && is.Mode().Perm()&0o007 != 0 {
		d.say("data directory", warn, "%s can be read by every user of this machine (chmod o= %s)", d.dir, d.dir)
	}
}

// holder finds out whether a broker has the directory.
func (d *doctor) holder() {
	disk, err := vfs.OpenDisk(d.dir)
	if err != nil {
		d.say("data directory", fail, "%v", err)
		return
	}
	defer disk.Close()
	lock, err := disk.Lock("LOCK")
	if locked, ok := errors.AsType[*vfs.LockedError](err); ok {
		d.running = locked.Holder
		d.say("data directory", fine, "%s is used by the broker with pid %s", d.dir, locked.Holder)
		return
	}
	if err != nil {
		d.say("data directory", fail, "%v", err)
		return
	}
	lock.Close()
	d.say("data directory", fine, "%s holds the data of a stopped broker", d.dir)
}

// Figures of the disk that are worth a warning.
const (
	syncsTried = 20
	slowSync   = 20 * time.Millisecond // median; a disk with a cache of its own needs less than 1 ms, a spinning one 10
)

// disk tries how long a sync takes below dir and how much room there is.
func (d *doctor) disk(dir string) {
	f, err := os.CreateTemp(dir, ".perigee-doctor-*")
	if err != nil {
		d.say("disk", fail, "cannot write: %v", err)
		return
	}
	defer os.Remove(f.Name())
	defer f.Close()
	times, err := timeSyncs(f)
	if err != nil {
		d.say("disk", fail, "sync: %v", err)
		return
	}
	status := fine
	if times[len(times)/2] > slowSync {
		status = warn
	}
	d.say("sync", status, "median %v, slowest %v of %d: every acknowledged write waits for one", times[len(times)/2].Round(10*time.Microsecond),
		times[len(times)-1].Round(10*time.Microsecond), len(times))
	d.room(dir)
}

func timeSyncs(f *os.File) ([]time.Duration, error) {
	block := make([]byte, 4096)
	var times []time.Duration
	for i := range syncsTried {
		if _, err := f.WriteAt(block, int64(i*len(block))); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := f.Sync(); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return times, nil
}

func (d *doctor) room(dir string) {
	disk, err := vfs.OpenDisk(dir)
	if err != nil {
		d.say("disk", fail, "%v", err)
		return
	}
	defer disk.Close()
	free, total, err := disk.Free()
	if err != nil {
		d.say("disk", warn, "cannot tell the free space: %v", err)
		return
	}
	reserve, status := d.settings.Storage.ReserveBytes, fine
	switch {
	case free < reserve:
		status = fail
	case free < 4*reserve:
		status = warn
	}
	d.say("disk", status, "%s of %s free; produce is refused below %s (perigee.disk.reserve.bytes)",
		humanize.IBytes(uint64(free)), humanize.IBytes(uint64(total)), humanize.IBytes(uint64(reserve)))
}

func (d *doctor) openFiles() {
	limit, few := server.OpenFileLimit()
	if limit == 0 {
		d.say("open files", warn, "cannot tell the limit")
		return
	}
	status := fine
	if few {
		status = warn
	}
	d.say("open files", status, "%d allowed; every connection and open segment takes one (ulimit -n, LimitNOFILE)", limit)
}

// clock compares the time with that of the data directory's last change.
func (d *doctor) clock() {
	info, err := os.Stat(filepath.Join(d.dir, "identity.json"))
	if ahead := time.Duration(0); err == nil {
		if ahead = time.Until(info.ModTime()); ahead > time.Minute {
			d.say("clock", warn, "%s: the data directory was written %v later than that", time.Now().Format(time.RFC3339), ahead.Round(time.Second))
			return
		}
	}
	d.say("clock", fine, "%s", time.Now().Format(time.RFC3339))
}

// port reports whether a listener could be bound, or is: by the broker that runs.
func (d *doctor) port(name string, l *config.Listener) (bound bool) {
	check := "listener " + name
	if l == nil {
		d.say(check, fine, "off")
		return false
	}
	sockets, err := transport.Bind(name, l.Address())
	for _, socket := range sockets {
		socket.Close()
	}
	inUse, ok := errors.AsType[*transport.InUseError](err)
	switch {
	case err == nil && d.running != "":
		d.say(check, fail, "nobody listens at %s, though the broker with pid %s runs: it has other settings, or still starts", l.Address(), d.running)
	case err == nil:
		d.say(check, fine, "%s is free", l.Address())
	case !ok:
		d.say(check, fail, "%v", err)
	case d.running == "":
		d.say(check, fail, "%v", err)
	default:
		d.say(check, fine, "%s is in use by %s", l.Address(), inUse.Owner)
		return true
	}
	return false
}

// kafkaListener looks at a port, and at what its clients are told.
func (d *doctor) kafkaListener(ctx context.Context, l config.Listener) {
	bound := d.port(l.Name, &l)
	if l.AdvertisedHost != "" {
		d.resolve(ctx, l)
	}
	if bound {
		d.bootstrap(ctx, l)
	}
}

func (d *doctor) resolve(ctx context.Context, l config.Listener) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeoutDefault)
	defer cancel()
	found, err := net.DefaultResolver.LookupHost(ctx, l.AdvertisedHost)
	if err != nil {
		d.say("advertised "+l.Name, warn, "%s cannot be looked up here: %v", l.AdvertisedHost, err)
		return
	}
	d.say("advertised "+l.Name, fine, "%s is %v", l.AdvertisedHost, found)
}

// bootstrap does what a client does first: it asks the port for the brokers and
// connects to the addresses it is told.
func (d *doctor) bootstrap(ctx context.Context, l config.Listener) {
	host := l.Host
	if l.Wildcard() {
		host = "localhost"
	}
	own := &session{brokers: []string{net.JoinHostPort(host, strconv.Itoa(l.Port))}}
	ctx, cancel := context.WithTimeout(ctx, dialTimeoutDefault)
	defer cancel()
	client, err := own.open(ctx)
	if err != nil {
		d.say("client of "+l.Name, fail, "%v", err)
		return
	}
	defer client.Close()
	brokers, err := kadm.NewClient(client).ListBrokers(ctx)
	if err != nil {
		d.say("client of "+l.Name, fail, "asks for the brokers: %v", err)
		return
	}
	for _, b := range brokers {
		address := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			d.say("client of "+l.Name, fail, "is told to connect to %s, and cannot: %v", address, err)
			continue
		}
		conn.Close()
		d.say("client of "+l.Name, fine, "is told to connect to %s, and can", address)
	}
}
