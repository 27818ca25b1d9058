package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// file returns a capture with one packet at each time, in nanoseconds.
func file(times ...uint64) []byte {
	b := pcapng.AppendSection(nil, &pcapng.Section{Application: "sonde"})
	b = pcapng.AppendInterface(b, &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})
	for _, at := range times {
		b = pcapng.AppendPacket(b, &pcapng.Packet{Time: at, Data: make([]byte, 60), Length: 60})
	}
	return b
}

// times returns the times of the packets of a capture.
func times(t *testing.T, path string) []uint64 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return timesOf(t, b)
}

func timesOf(t *testing.T, b []byte) []uint64 {
	t.Helper()
	var got []uint64
	for r := pcapng.NewReader(bytes.NewReader(b)); ; {
		block, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := block.(*pcapng.Packet); ok {
			got = append(got, p.Time)
		}
	}
}

// interfacesOf counts the interfaces of a file.
func interfacesOf(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := pcapng.NewReader(bytes.NewReader(b))
	for err == nil {
		_, err = r.Next()
	}
	return len(r.Interfaces())
}

// The files of a ring are merged to one stream: each interface appears once, whatever the number of files.
func TestSaveRings(t *testing.T) {
	old, newer, other := file(10, 20), file(30, 40), file(25)
	files := cluster{"u1/web-00001.pcapng": old, "u1/web-00002.pcapng": newer, "u2/db.pcapng": other}
	s := Saver{Download: files.download, MaxBytes: 1 << 20, MaxTotal: 1 << 30, OnProgress: func(string, int64, int64) {}, OnMerge: func() {}}
	out := Output{Path: filepath.Join(t.TempDir(), "all.pcapng")}
	saved, err := s.Save(t.Context(), []v1alpha1.PodResult{
		pod("u1", "web", result("web-00001.pcapng", old), result("web-00002.pcapng", newer)), pod("u2", "db", result("db.pcapng", other)),
	}, out)
	if err != nil || len(saved.Problems()) > 0 {
		t.Fatalf("%v, problems %v", err, saved.Problems())
	}
	if diff := cmp.Diff([]uint64{10, 20, 25, 30, 40}, times(t, out.Path)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := interfacesOf(t, out.Path); n != 2 {
		t.Errorf("%d interfaces, of two Pods with one each", n)
	}
}

// cluster holds files by Pod UID and name.
type cluster map[string][]byte

func (c cluster) download(_ context.Context, uid, name string, _ int64, dst *os.File, progress func(done, total int64)) (int64, error) {
	b, ok := c[uid+"/"+name]
	if !ok {
		return 0, fmt.Errorf("download %s: gone", name)
	}
	if _, err := dst.Write(b); err != nil {
		return 0, err
	}
	progress(int64(len(b)), int64(len(b)))
	return int64(len(b)), nil
}

func pod(uid, name string, files ...v1alpha1.ResultFile) v1alpha1.PodResult {
	return v1alpha1.PodResult{UID: uid, Name: name, Phase: v1alpha1.PhaseCompleted, Files: files}
}

func result(name string, b []byte) v1alpha1.ResultFile {
	return v1alpha1.ResultFile{Name: name, Bytes: int64(len(b))}
}

func saver(c cluster) *Saver {
	return &Saver{Download: c.download, MaxBytes: 1 << 20, MaxTotal: 1 << 30, OnProgress: func(string, int64, int64) {}, OnMerge: func() {}}
}

// names returns the names in a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	return got
}

func TestSaveMerges(t *testing.T) {
	a, b := file(1, 3, 5), file(2, 4)
	c := cluster{"u1/a.pcapng": a, "u2/b.pcapng": b}
	dir := t.TempDir()
	var fetched sync.Map
	s := saver(c)
	s.OnProgress = func(uid string, done, total int64) { fetched.Store(uid, done == total) }
	merging := 0
	s.OnMerge = func() { merging++ }
	out := Output{Path: filepath.Join(dir, "web.pcapng")}
	saved, err := s.Save(t.Context(), []v1alpha1.PodResult{pod("u1", "a", result("a.pcapng", a)), pod("u2", "b", result("b.pcapng", b))}, out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uint64{1, 2, 3, 4, 5}, times(t, out.Path)); diff != "" {
		t.Errorf("times of packets (-want +got):\n%s", diff)
	}
	info, err := os.Stat(out.Path)
	if err != nil {
		t.Fatal(err)
	}
	if saved.Path != out.Path || saved.Bytes != info.Size() || len(saved.Problems()) != 0 {
		t.Errorf("saved %+v, and the file has %d bytes", saved, info.Size())
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v: other users must not read packets", info.Mode())
	}
	if got := names(t, dir); !slices.Equal(got, []string{"web.pcapng"}) {
		t.Errorf("left behind: %q", got)
	}
	if ok, _ := fetched.Load("u2"); ok != true || merging != 1 {
		t.Errorf("end of u2's transfer reported: %v; merging reported %d times", ok, merging)
	}
}

func TestSaveToTheStandardOutput(t *testing.T) {
	a := file(1, 2)
	var stdout bytes.Buffer
	saved, err := saver(cluster{"u1/a.pcapng": a}).Save(t.Context(), []v1alpha1.PodResult{pod("u1", "a", result("a.pcapng", a))}, Output{Path: "-", Stdout: &stdout})
	if err != nil {
		t.Fatal(err)
	}
	if got := timesOf(t, stdout.Bytes()); !slices.Equal(got, []uint64{1, 2}) || saved.Bytes != int64(stdout.Len()) {
		t.Errorf("packets %v, %d bytes; reported %+v", got, stdout.Len(), saved)
	}
}

func TestSaveSeparately(t *testing.T) {
	a, b := file(1), file(2)
	c := cluster{"u1/db-0-qwer.pcapng": a, "u2/db-0-qwer.pcapng": b}
	dir := filepath.Join(t.TempDir(), "db")
	saved, err := saver(c).Save(t.Context(), []v1alpha1.PodResult{
		pod("u1", "db-0", result("db-0-qwer.pcapng", a)), pod("u2", "db-0", result("db-0-qwer.pcapng", b)), // restarted
	}, Output{Path: dir + "/", Separate: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"db-0-qwer-u2.pcapng", "db-0-qwer.pcapng"}) {
		t.Errorf("files %q", got)
	}
	if saved.Bytes != int64(len(a)+len(b)) || saved.Files[1].Path != filepath.Join(dir, "db-0-qwer-u2.pcapng") {
		t.Errorf("saved %+v", saved)
	}
	if got := names(t, filepath.Dir(dir)); !slices.Equal(got, []string{"db"}) {
		t.Errorf("left behind: %q", got)
	}
}

func TestSaveNotesProblemsAndSavesTheRest(t *testing.T) {
	a, whole := file(1), file(2, 3)
	cut := whole[:len(whole)-10]
	killed := pod("u4", "killed", v1alpha1.ResultFile{Name: "killed.pcapng", Bytes: 40}) // its last account is incomplete
	killed.Phase = v1alpha1.PhaseIncomplete
	pods := []v1alpha1.PodResult{
		pod("u1", "good", result("good.pcapng", a)),
		pod("u2", "gone", result("gone.pcapng", a)),
		pod("u3", "short", result("short.pcapng", whole)),
		killed,
		pod("u5", "evil", result("../evil.pcapng", a)),
		pod("u6", "cut", result("cut.pcapng", cut)),
	}
	c := cluster{"u1/good.pcapng": a, "u3/short.pcapng": cut, "u4/killed.pcapng": cut, "u5/../evil.pcapng": a, "u6/cut.pcapng": cut}
	out := Output{Path: filepath.Join(t.TempDir(), "web.pcapng")}
	saved, err := saver(c).Save(t.Context(), pods, out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uint64{1, 2, 2, 2}, times(t, out.Path)); diff != "" {
		t.Errorf("times of packets (-want +got):\n%s", diff)
	}
	got := map[string]string{}
	for _, f := range saved.Problems() {
		got[f.Pod.Name] = f.Err.Error()
	}
	want := map[string]string{
		"gone":  "download gone.pcapng: gone",
		"short": fmt.Sprintf("short.pcapng has %d bytes, but %d were captured: download it again", len(cut), len(whole)),
		"evil":  `"../evil.pcapng" is not a valid file name`,
		"cut":   "cut.pcapng ends in the middle of a packet: download it again",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestSaveKeepsWhatCannotBeMerged(t *testing.T) {
	good, bad := file(1), []byte(strings.Repeat("no pcapng ", 10))
	dir := t.TempDir()
	out := Output{Path: filepath.Join(dir, "web.pcapng")}
	saved, err := saver(cluster{"u1/good.pcapng": good, "u2/bad.pcapng": bad}).Save(t.Context(), []v1alpha1.PodResult{
		pod("u1", "good", result("good.pcapng", good)), pod("u2", "bad", result("bad.pcapng", bad)),
	}, out)
	if err == nil || !strings.Contains(err.Error(), "the files of the single Pods are in "+out.Path+".parts") || saved.Path != "" {
		t.Fatalf("error %v, saved %+v", err, saved)
	}
	if got := names(t, out.Path+".parts"); !slices.Equal(got, []string{"bad.pcapng", "good.pcapng"}) {
		t.Errorf("kept %q", got)
	}
}

func TestSaveNothing(t *testing.T) {
	dir := t.TempDir()
	gone := pod("u1", "a", v1alpha1.ResultFile{Name: "a.pcapng", Bytes: 5})
	for name, pods := range map[string][]v1alpha1.PodResult{"no Pods": nil, "no files": {pod("u1", "a")}, "none came": {gone}} {
		saved, err := saver(cluster{}).Save(t.Context(), pods, Output{Path: filepath.Join(dir, "web.pcapng")})
		if err != nil || saved.Path != "" {
			t.Errorf("%s: saved %+v, %v", name, saved, err)
		}
		if got := names(t, dir); len(got) != 0 {
			t.Errorf("%s: left behind: %q", name, got)
		}
	}
}

func TestSaveInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	s := saver(nil)
	interrupted := errors.New("interrupted")
	s.Download = func(ctx context.Context, _, _ string, _ int64, dst *os.File, _ func(done, total int64)) (int64, error) {
		_, _ = dst.WriteString("half")
		cancel(interrupted)
		return 4, ctx.Err()
	}
	dir := t.TempDir()
	_, err := s.Save(ctx, []v1alpha1.PodResult{pod("u1", "a", v1alpha1.ResultFile{Name: "a.pcapng", Bytes: 5})}, Output{Path: filepath.Join(dir, "web.pcapng")})
	if !errors.Is(err, interrupted) {
		t.Errorf("error %v, want %v", err, interrupted)
	}
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

// TestSaveBoundsDownloads: a file has at most the size in the status of a Pod that is Completed, else at most what the capture
// allows for a Pod, and all together have at most what it allows for all its Pods.
func TestSaveBoundsDownloads(t *testing.T) {
	c := &v1alpha1.PacketCapture{Spec: v1alpha1.PacketCaptureSpec{MaxBytes: 1000}}
	c.Status.Pods = make([]v1alpha1.PodResult, 2)
	c.Status.PodsOmitted = 1
	killed := func(uid string) v1alpha1.PodResult {
		p := pod(uid, "killed-"+uid, v1alpha1.ResultFile{Name: uid + ".pcapng", Bytes: 10})
		p.Phase = v1alpha1.PhaseIncomplete
		return p
	}
	const perPod = 1000 + slack
	for name, tc := range map[string]struct {
		pods []v1alpha1.PodResult
		want []int64
	}{
		"Completed":                    {[]v1alpha1.PodResult{pod("u1", "web", v1alpha1.ResultFile{Name: "a", Bytes: 700})}, []int64{700}},
		"Completed, and more than may": {[]v1alpha1.PodResult{pod("u1", "web", v1alpha1.ResultFile{Name: "a", Bytes: 1 << 40})}, []int64{perPod}},
		"killed":                       {[]v1alpha1.PodResult{killed("u1")}, []int64{perPod}},
		"more Pods than the capture has": {
			[]v1alpha1.PodResult{killed("u1"), killed("u2"), killed("u3"), killed("u4")}, []int64{perPod, perPod, perPod, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := saver(nil)
			s.MaxBytes, s.MaxTotal = Bounds(c)
			var got []int64
			s.Download = func(_ context.Context, _, _ string, most int64, _ *os.File, _ func(done, total int64)) (int64, error) {
				got = append(got, most)
				return most, nil
			}
			for _, p := range tc.pods {
				_ = s.fetch(t.Context(), t.TempDir(), plan([]v1alpha1.PodResult{p}))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("bounds (-want +got):\n%s", diff)
			}
		})
	}
}
