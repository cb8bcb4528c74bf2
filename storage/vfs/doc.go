// Package vfs is the file system the engine needs and nothing more: files
// written at explicit positions, directories whose entries become durable by
// an explicit sync, and a lock. Everything below a data directory goes through
// it, so that a test can hold the whole disk in memory and cut its power.
//
//	FS ──┬── Disk    the real one, rooted at a directory
//	     ├── Memory  a twin in memory that remembers what was synced
//	     └── Fault   a wrapper around either: failing, slow and counted operations
//
// # What is durable when
//
// The three promises the engine builds on, and the only ones Memory keeps when
// it crashes:
//
//	bytes of a file          after File.Sync returned nil
//	a name (create, rename,  after FS.SyncDir of its directory returned nil
//	remove)
//	a rename                 both names change together or not at all
//
// Memory tears what was not synced in units of 512 bytes, which is what disks
// promise to write in one piece:
//
//	synced   │ AAAA │ AAAA │ AAAA │ AAAA │
//	written  │ AAAA │ BBBB │ BBBB │ BBBB │ BBBB │ new size
//	crashed  │ AAAA │ BBBB │ AAAA │ BBAA │           one of many outcomes
//
// # Names
//
// A name is a slash-separated path relative to the root, without "..". "." is
// the root itself.
//
// # Goroutines and locks
//
// Every FS and every File may be used from several goroutines at once; writes
// to overlapping ranges of one file are the caller's to order. No goroutine is
// started here. Memory has one lock, held for the copy of the bytes. Fault's
// hooks run on the goroutine of the operation, under no lock.
package vfs
