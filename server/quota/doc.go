// Package quota bounds what clients may use: the memory of requests in flight
// (Memory). It knows no protocol and starts no goroutine; waiting is done by
// the caller.
package quota
