package pcapfilter

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestMissingModuleSaysWhatToDo(t *testing.T) {
	_, err := readModule(fstest.MapFS{})
	if err == nil || !strings.Contains(err.Error(), "run make pcapfilter") {
		t.Errorf("error %v does not say how to build the module", err)
	}
}

// TestModuleReachesNothing: without imports, libpcap's code cannot leave its
// own memory.
func TestModuleReachesNothing(t *testing.T) {
	binary, err := readModule(artifacts)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSandbox(t.Context(), binary, Most)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.close(t.Context()) }()
	if imports := s.module.ImportedFunctions(); len(imports) != 0 {
		t.Errorf("the module imports %d functions", len(imports))
	}
	if imports := s.module.ImportedMemories(); len(imports) != 0 {
		t.Errorf("the module imports %d memories", len(imports))
	}
}

func TestBrokenModuleIsAnError(t *testing.T) {
	if _, err := newSandbox(t.Context(), []byte("\x00asm\x01\x00\x00\x00\xff"), Most); err == nil {
		t.Error("loaded a broken module")
	}
}
