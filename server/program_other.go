//go:build !linux

package server

// dropStartPages does nothing: this is left to the system.
func dropStartPages() error { return nil }
