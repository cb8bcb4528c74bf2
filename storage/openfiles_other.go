//go:build !unix

package storage

// openFilesDefault is small enough for any system without a limit to ask for.
func openFilesDefault() int { return 512 }
