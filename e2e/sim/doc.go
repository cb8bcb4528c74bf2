// Package sim runs a whole broker on a computer that does not exist: a disk in
// memory that knows what was synced, connections in memory, a clock that moves
// when it is told to, and clients that take turns. What a run does is decided by
// its seed.
//
//	seed ──► turns: which actor of package workload sends its next request
//	     ──► faults: where the power goes, what the disk had written by then,
//	                 which sync fails, when the disk is full, how long it takes
//	     ──► time: how far the clock moves between turns
//
//	┌──────────────── one synctest bubble: virtual time, idle detection ────────────────┐
//	│  actors ──turn──► front ends ─► coordinator ─► engine ─► Fault ─► Memory disk       │
//	│     ▲                                                        │                      │
//	│   World: one request at a time; when everybody is idle       └► after every change: │
//	│          the next one                                           a picture, or a cut │
//	└────────────────────────────────────────────────────────────────────────────────────┘
//
// Two kinds of runs:
//
//   - A script is short. After every operation that changes the disk a picture of
//     it is taken, as a power cut at that moment might leave it, together with
//     the history clients know by then. Each picture is then a broker of its own,
//     started, and cut again while it recovers; its clients go on where they were.
//     Nothing is sampled: every operation around every end is a crash point.
//   - A long run lives through cuts, failing syncs, full disks and slow ones at
//     times its seed chooses, and its clients live through them with it.
//
// Every history goes to package checker.
//
// # What is deterministic
//
// One actor works at a time: whoever is answered while another has the turn waits
// for its own. So two runs of a script have the same history. What happens on the
// disk beside a request (a checkpoint, the flush of an enrolment nobody waits for)
// is ordered by Go's scheduler: the picture of change 56 need not show exactly the
// same moment twice, and a long run, whose faults strike by the number of an
// operation, can take another turn there. On one processor, as the tests run, it
// hardly ever does.
package sim
