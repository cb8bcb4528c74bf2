package e2e

import (
	"syscall"
	"unsafe"
)

// ioctlInt asks a descriptor for a number.
func ioctlInt(fd, request uintptr) (int, error) {
	var n int32
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(&n))); errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
