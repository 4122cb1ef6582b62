// Command pulumi-resource-kubernetes is the released provider behind a main of our own:
// the upstream main embeds a file that only its release process generates.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
)

// version is set by the linker; the engine reports it.
var version string

func main() {
	schema, err := readSchema()
	if err != nil {
		fmt.Fprintf(os.Stderr, "the schema belongs beside the program: %v\n", err)
		os.Exit(1)
	}
	provider.Serve("kubernetes", version, schema, []byte("{}"))
}

// readSchema reads the schema file that the build puts beside the program.
func readSchema() ([]byte, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(filepath.Dir(program), "pulumi-resource-kubernetes.schema.json"))
}
