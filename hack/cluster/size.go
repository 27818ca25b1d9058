package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// size is a number of bytes in Kubernetes notation: 512Mi, 2Gi. Zero means none.
type size int64

const (
	mebibyte size = 1 << 20
	gibibyte size = 1 << 30
	// The minimum for a node's Pods to start, and more than our machines have free.
	minNodeDisk = 256 * mebibyte
	maxNodeDisk = 64 * gibibyte
)

// String implements pflag.Value.
func (s *size) String() string {
	switch {
	case *s == 0:
		return ""
	case *s%gibibyte == 0:
		return fmt.Sprintf("%dGi", *s/gibibyte)
	}
	return fmt.Sprintf("%dMi", *s/mebibyte)
}

// Type implements pflag.Value: the name of the value in the help.
func (s *size) Type() string { return "SIZE" }

// Set implements pflag.Value.
func (s *size) Set(text string) error {
	digits, unit := text, size(0)
	for suffix, bytes := range map[string]size{"Mi": mebibyte, "Gi": gibibyte} {
		if d, ok := strings.CutSuffix(text, suffix); ok {
			digits, unit = d, bytes
		}
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || unit == 0 {
		return errors.New("write a whole number of Mi or Gi: 512Mi, 2Gi")
	}
	*s = size(n) * unit
	if *s < minNodeDisk || *s > maxNodeDisk {
		smallest, largest := minNodeDisk, maxNodeDisk
		return fmt.Errorf("a node's disk has %s to %s", smallest.String(), largest.String())
	}
	return nil
}
