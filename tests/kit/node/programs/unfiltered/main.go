// Command unfiltered is runc for bundles without a seccomp profile: it takes the profile away, then becomes runc.
//
// containerd gives each pod sandbox a profile. A runc that can apply one needs the C library libseccomp, which is no Go
// module. The containers of the tests need no system call filter.
//
// The runc that it becomes is beside it. In a bundle, it changes config.json.
package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("unfiltered: ")
	if at := slices.Index(os.Args, "--bundle"); at > 0 && at+1 < len(os.Args) {
		if err := removeProfile(filepath.Join(os.Args[at+1], "config.json")); err != nil {
			log.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	runc := filepath.Join(filepath.Dir(self), "runc")
	log.Fatal(syscall.Exec(runc, append([]string{runc}, os.Args[1:]...), os.Environ()))
}

// removeProfile takes linux.seccomp out of a container's configuration, and leaves everything else as it is.
func removeProfile(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var config, linux map[string]json.RawMessage
	if err := json.Unmarshal(text, &config); err != nil {
		return err
	}
	if err := json.Unmarshal(config["linux"], &linux); err != nil {
		return err
	}
	delete(linux, "seccomp")
	if config["linux"], err = json.Marshal(linux); err != nil {
		return err
	}
	if text, err = json.Marshal(config); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
