// Package PROCTOR_NAME runs the tests of the grader alone, and reports each of them behind the secret word.
package PROCTOR_NAME

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

// These are set before any package that depends on this one begins.
var word = read()
var arguments, flags, defaults = os.Args[:1], flag.CommandLine, map[string]string{}

func init() {
	testing.Init()
	flags.VisitAll(func(each *flag.Flag) {
		if strings.HasPrefix(each.Name, "test.") {
			defaults[each.Name] = each.DefValue
		}
	})
}

func read() []byte {
	found, _ := os.ReadFile("/proc/self/fd/3")
	os.Truncate("/proc/self/fd/3", 0)
	return found
}

// Run runs those tests of m whose names are in expected, by the defaults of every flag of `go test`, and leaves.
func Run(m *testing.M, expected string) {
	os.Args = arguments
	for name, value := range defaults {
		flags.Set(name, value)
	}
	names := strings.Fields(expected)
	outcome := map[string]string{}
	var lock sync.Mutex // parallel tests end in goroutines of their own
	field := reflect.ValueOf(m).Elem().FieldByName("tests")
	tests := (*[]testing.InternalTest)(unsafe.Pointer(field.UnsafeAddr()))
	chosen := []testing.InternalTest{}
	for _, each := range *tests {
		each := each
		for _, name := range names {
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
	report := string(word) + "\n"
	for _, name := range names {
		if outcome[name] == "" {
			outcome[name] = "failed"
		}
		report += fmt.Sprintf("%s %s\n", outcome[name], name)
	}
	os.WriteFile("/proc/self/fd/3", []byte(report), 0o600)
	os.Exit(0)
}
