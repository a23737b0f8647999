// Runs the tests of the grader alone, and reports each of them behind the secret word.
package PROCTOR_PACKAGE

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"PROCTOR_MODULE/PROCTOR_NAME"
)

func TestMain(m *testing.M) {
	word := PROCTOR_NAME.Word()
	os.Args = os.Args[:1]
	expected := strings.Fields("PROCTOR_EXPECTED")
	outcome := map[string]string{}
	var lock sync.Mutex // parallel tests end in goroutines of their own
	field := reflect.ValueOf(m).Elem().FieldByName("tests")
	tests := (*[]testing.InternalTest)(unsafe.Pointer(field.UnsafeAddr()))
	chosen := []testing.InternalTest{}
	for _, each := range *tests {
		each := each
		for _, name := range expected {
			if name == each.Name {
				chosen = append(chosen, testing.InternalTest{Name: name, F: func(t *testing.T) {
					t.Cleanup(func() {
						lock.Lock()
						defer lock.Unlock()
						outcome[each.Name] = "passed"
						if t.Skipped() {
							outcome[each.Name] = "skipped"
						}
						if t.Failed() {
							outcome[each.Name] = "failed"
						}
					})
					each.F(t)
				}})
			}
		}
	}
	*tests = chosen
	m.Run()
	report := word + "\n"
	for _, name := range expected {
		if outcome[name] == "" {
			outcome[name] = "failed"
		}
		report += fmt.Sprintf("%s %s\n", outcome[name], name)
	}
	os.WriteFile("/proc/self/fd/3", []byte(report), 0o600)
	os.Exit(0)
}
