package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// control runs a system call on the file's descriptor, again when a signal
// interrupted it, and keeps the descriptor open meanwhile.
func control(f *os.File, call func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = raw.Control(func(fd uintptr) {
		for {
			if result = call(int(fd)); !errors.Is(result, unix.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, result)
}

func pwritev(f *os.File, bufs [][]byte, off int64) (n int, err error) {
	err = control(f, func(fd int) (err error) {
		n, err = unix.Pwritev(fd, bufs, off)
		return err
	})
	return n, err
}

const directFlag = unix.O_DIRECT

// aligns reports whether the file takes direct writes aligned to Block. Kernels
// that cannot say have refused to open it if it takes none.
func aligns(f *os.File) bool {
	var s unix.Statx_t
	err := control(f, func(fd int) error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &s)
	})
	if err != nil || s.Mask&unix.STATX_DIOALIGN == 0 {
		return true
	}
	fits := func(align uint32) bool { return align > 0 && Block%align == 0 }
	return fits(s.Dio_mem_align) && fits(s.Dio_offset_align)
}

func datasync(f *os.File) error { return control(f, unix.Fdatasync) }

func startWriteback(f *os.File, off, n int64) {
	// Only advice, see File: a system that cannot is as good as one that did.
	_ = control(f, func(fd int) error { return unix.SyncFileRange(fd, off, n, unix.SYNC_FILE_RANGE_WRITE) })
}

// reserve asks for blocks. File systems that cannot are no error: the zeros
// written next will find out.
func reserve(f *os.File, off, n int64) error {
	err := control(f, func(fd int) error { return unix.Fallocate(fd, 0, off, n) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

func volume(path string) (free, total int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize, nil
}
