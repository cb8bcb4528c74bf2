package kafka

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/storage/model"
)

// Incremental fetch sessions (KIP-227). A consumer of a thousand partitions
// that are mostly quiet names them once; after that its requests carry only
// what changed, and our answers only the partitions that have something new.
//
//	session id, epoch   means
//	0, 0                everything is named; start a session
//	0, -1               everything is named; no session
//	n, -1               the same, and end session n
//	n, 0                the same as 0, 0, and end session n
//	n, e                what changed since epoch e-1; with nothing left, session n ends
//
// A session is kept by id, not by connection: it survives a reconnect. A session
// that cannot be found or is at another epoch gets a top-level error, and the
// client starts again with 0, 0.

const (
	epochInitial int32 = 0
	epochFinal   int32 = -1

	// sessionIdle is how long a session is safe from being dropped for a new one
	// when the cache is full, as in Kafka.
	sessionIdle = 2 * time.Minute
)

// fetchSessions is the cache of all sessions.
type fetchSessions struct {
	mu    sync.Mutex
	limit int // max.incremental.fetch.session.cache.slots; 0 turns sessions off
	byID  map[int32]*fetchSession
}

func newFetchSessions(limit int) *fetchSessions {
	return &fetchSessions{limit: limit, byID: make(map[int32]*fetchSession)}
}

func (c *fetchSessions) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID)
}

// open makes room and returns a new session, or nil when the cache is full of
// sessions in use: the client then simply goes on without one.
func (c *fetchSessions) open(now time.Time, byID bool) *fetchSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byID) >= c.limit && !c.dropIdlestLocked(now) {
		return nil
	}
	s := &fetchSession{topicIDs: byID, epoch: 1, used: now, parts: make(map[fetchKey]*fetchPart)}
	for s.id == 0 || c.byID[s.id] != nil {
		s.id = rand.Int32()
	}
	c.byID[s.id] = s
	return s
}

func (c *fetchSessions) dropIdlestLocked(now time.Time) bool {
	var idlest *fetchSession
	for _, s := range c.byID {
		if idlest == nil || s.used.Before(idlest.used) {
			idlest = s
		}
	}
	if idlest == nil || now.Sub(idlest.used) < sessionIdle {
		return false
	}
	delete(c.byID, idlest.id)
	return true
}

// resume finds the session an incremental request continues and moves it to its
// next epoch. The code is a top-level error.
func (c *fetchSessions) resume(id, epoch int32, byID bool, now time.Time) (*fetchSession, int16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.byID[id]
	switch {
	case !ok:
		return nil, kerr.FetchSessionIDNotFound.Code
	case s.epoch != epoch:
		return nil, kerr.InvalidFetchSessionEpoch.Code
	case s.topicIDs != byID:
		return nil, kerr.FetchSessionTopicIDError.Code
	}
	s.epoch = nextEpoch(epoch)
	s.used = now
	return s, 0
}

// nextEpoch counts 1, 2, … and from the largest number to 1 again: 0 and -1
// have meanings of their own.
func nextEpoch(epoch int32) int32 {
	if epoch == 1<<31-1 {
		return 1
	}
	return epoch + 1
}

func (c *fetchSessions) close(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byID, id)
}

// fetchKey names a partition the way the client does: by topic id from version
// 13 on, by name before.
type fetchKey struct {
	id        model.TopicID
	name      string
	partition int32
}

// fetchWant is what a client wants of one partition.
type fetchWant struct {
	fetchKey
	from        model.Offset
	maxBytes    int32
	leaderEpoch model.LeaderEpoch // the client's idea of it, or -1
	lastEpoch   model.LeaderEpoch // of the last record it has, or -1
}

func wants(key fetchKey, q *kmsg.FetchRequestTopicPartition) fetchWant {
	return fetchWant{
		fetchKey:    key,
		from:        model.Offset(q.FetchOffset),
		maxBytes:    q.PartitionMaxBytes,
		leaderEpoch: model.LeaderEpoch(q.CurrentLeaderEpoch),
		lastEpoch:   model.LeaderEpoch(q.LastFetchedEpoch),
	}
}

// fetchPart is a partition of a session: what is wanted of it, and what its
// client was last told.
type fetchPart struct {
	fetchWant
	told       bool         // toldBounds was sent
	toldBounds model.Bounds // Start, Stable, High
	at         int          // position in fetchSession.order; -1: forgotten
}

// fetchSession is one session. Its id and topicIDs never change; epoch and used
// belong to the cache's lock; the rest to whoever resumed it: a client has one
// request of a session in flight, and a second one that breaks this rule waits.
type fetchSession struct {
	id       int32
	topicIDs bool
	epoch    int32
	used     time.Time

	mu    sync.Mutex
	parts map[fetchKey]*fetchPart
	order []*fetchPart // whom to serve first; nil holes where a partition was moved or forgotten
	holes int
}

// update applies an incremental request: partitions are added or changed, then
// the forgotten ones go, in this order as in Kafka.
func (s *fetchSession) update(req *kmsg.FetchRequest) {
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			q := &t.Partitions[j]
			key := fetchKey{t.TopicID, t.Topic, q.Partition}
			p, ok := s.parts[key]
			if !ok {
				p = new(fetchPart)
				s.parts[key] = p
				s.push(p)
			}
			p.fetchWant = wants(key, q)
		}
	}
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, partition := range t.Partitions {
			s.forget(fetchKey{t.TopicID, t.Topic, partition})
		}
	}
}

func (s *fetchSession) push(p *fetchPart) {
	p.at = len(s.order)
	s.order = append(s.order, p)
}

func (s *fetchSession) forget(key fetchKey) {
	if p, ok := s.parts[key]; ok {
		delete(s.parts, key)
		s.vacate(p)
	}
}

// served moves a partition that returned records behind the others, so that the
// ones that were left out for want of space come first next time.
func (s *fetchSession) served(p *fetchPart) {
	if p.at < 0 {
		return // forgotten meanwhile, by another request of the session
	}
	s.vacate(p)
	s.push(p)
}

// vacate takes a partition out of the order. Holes are bounded: a consumer that
// pauses and resumes makes one with every request.
func (s *fetchSession) vacate(p *fetchPart) {
	s.order[p.at] = nil
	p.at = -1
	if s.holes++; s.holes > len(s.parts)+16 {
		s.compact()
	}
}

func (s *fetchSession) compact() {
	kept := s.order[:0]
	for _, p := range s.order {
		if p != nil {
			p.at = len(kept)
			kept = append(kept, p)
		}
	}
	clear(s.order[len(kept):])
	s.order, s.holes = kept, 0
}

// targets appends the partitions in the order they are to be served.
func (s *fetchSession) targets(to []fetchTarget) []fetchTarget {
	for _, p := range s.order {
		if p != nil {
			to = append(to, fetchTarget{fetchWant: p.fetchWant, part: p})
		}
	}
	return to
}

// news reports whether a partition without records and without error must be
// sent all the same, since the client was told something else before: also when
// only the last stable offset moved.
func (p *fetchPart) news(b model.Bounds) bool {
	return !p.told || p.toldBounds.Start != b.Start || p.toldBounds.Stable != b.Stable || p.toldBounds.High != b.High
}

// plan reads the session part of the request: which partitions, and through
// which session. A code other than 0 answers the request.
func (f *fetcher) plan(now time.Time) int16 {
	req, cache := f.req, f.session.fetches
	byID := req.Version >= 13
	switch {
	case req.SessionEpoch != epochInitial && req.SessionEpoch != epochFinal:
		s, code := cache.resume(req.SessionID, req.SessionEpoch, byID, now)
		if code != 0 {
			return code
		}
		f.follow(s)
		if len(f.targets) == 0 {
			cache.close(s.id)
			f.within = nil
		}
		return 0
	case req.SessionID != 0:
		cache.close(req.SessionID)
	}
	f.full = true
	if req.Version >= 7 && req.SessionEpoch == epochInitial && len(req.Topics) > 0 {
		if s := cache.open(now, byID); s != nil {
			f.follow(s)
			return 0
		}
	}
	f.named()
	return 0
}

// follow answers within a session.
func (f *fetcher) follow(s *fetchSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.update(f.req)
	f.within = s
	f.targets = s.targets(f.targets)
}

// named answers a request without session.
func (f *fetcher) named() {
	for i := range f.req.Topics {
		t := &f.req.Topics[i]
		for j := range t.Partitions {
			q := &t.Partitions[j]
			f.targets = append(f.targets, fetchTarget{fetchWant: wants(fetchKey{t.TopicID, t.Topic, q.Partition}, q)})
		}
	}
}
