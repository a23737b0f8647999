// Reads the secret word before any package that depends on this one begins.
package PROCTOR_NAME

import "os"

var word = read()

func read() []byte {
	found, _ := os.ReadFile("/proc/self/fd/3")
	os.Truncate("/proc/self/fd/3", 0)
	return found
}

// Word returns the word once.
func Word() string {
	found := string(word)
	word = nil
	return found
}
