package main

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// write writes numbered lines into a file, flushes each to the disk, and exits. It is the application of a Pod with a FluentPVC.
func write(flags *flag.FlagSet, args []string) error {
	code := flags.Int("exit", 0, "exit code")
	stay := flags.Bool("stay", false, "wait for SIGTERM after the last line")
	done := flags.String("done", "", "create this file after the last line")
	if err := writeLines(flags, args); err != nil {
		return err
	}
	if *done != "" {
		if err := os.WriteFile(*done, nil, 0o644); err != nil {
			return err
		}
	}
	if *stay {
		if err := idle(nil, nil); err != nil {
			return err
		}
	}
	os.Exit(*code)
	return nil
}

func writeLines(flags *flag.FlagSet, args []string) error {
	path := flags.String("file", "", "file to write")
	lines := flags.Int("lines", 1000, "number of lines")
	interval := flags.Duration("interval", 0, "pause between two lines")
	size := flags.Int("line-bytes", 32, "length of a line in bytes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	f, err := os.Create(*path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	for n := range *lines {
		if _, err := fmt.Fprintf(w, "%0*d\n", *size-1, n); err != nil {
			return err
		}
		if *interval > 0 {
			if err := errors.Join(w.Flush(), f.Sync()); err != nil {
				return err
			}
			time.Sleep(*interval)
		}
	}
	if err := errors.Join(w.Flush(), f.Sync()); err != nil {
		return err
	}
	fmt.Printf("wrote %d lines\n", *lines)
	return nil
}

// ship is a sidecar: it waits for SIGTERM, or exits by itself after a time.
func ship(flags *flag.FlagSet, args []string) error {
	after := flags.Duration("after", 0, "exit by itself after this time; 0 waits for SIGTERM")
	code := flags.Int("exit", 0, "exit code")
	done := flags.String("until", "", "exit by itself when this file exists")
	linger := flags.Duration("linger", 0, "exit so long after that file exists")
	if err := flags.Parse(args); err != nil {
		return err
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM, syscall.SIGINT)
	var timeout <-chan time.Time
	if *after > 0 {
		timeout = time.After(*after)
	}
	for {
		select {
		case <-term:
			return nil
		case <-timeout:
			os.Exit(*code)
		case <-time.After(200 * time.Millisecond):
			if _, err := os.Stat(*done); *done != "" && err == nil {
				time.Sleep(*linger)
				os.Exit(*code)
			}
		}
	}
}

// sum prints the SHA-256 and the size of each file of a directory, as a finalizer Job. With -fail N it fails the first N times, which
// it counts in a file of the directory.
func sum(flags *flag.FlagSet, args []string) error {
	dir := flags.String("dir", "", "directory to read")
	fail := flags.Int("fail", 0, "how many attempts fail before one succeeds; -1 for all")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := countAttempt(filepath.Join(*dir, ".attempts"), *fail); err != nil {
		return err
	}
	entries, err := os.ReadDir(*dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || e.Name() == ".attempts" {
			continue
		}
		f, err := os.Open(filepath.Join(*dir, e.Name()))
		if err != nil {
			return err
		}
		h := sha256.New()
		n, err := io.Copy(h, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		fmt.Printf("%x %d %s\n", h.Sum(nil), n, e.Name())
	}
	return nil
}

// countAttempt adds a byte to the file, and fails while the file has at most fail bytes.
func countAttempt(path string, fail int) error {
	if fail == 0 {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write([]byte{'.'}); err != nil {
		return err
	}
	info, err := f.Stat()
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if n := int(info.Size()); fail < 0 || n <= fail {
		return fmt.Errorf("attempt %d fails, as requested", n)
	}
	return nil
}
