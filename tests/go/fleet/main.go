// Clients with Doorman's own library of 2016: `fleet ADDRESS RESOURCE WANTS CLIENT...`. Prints `CLIENT CAPACITY`
// whenever a client gets another capacity, until the end of standard input.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/youtube/doorman/go/client/doorman"
	"google.golang.org/grpc"
)

func main() {
	address, resource := os.Args[1], os.Args[2]
	wants, err := strconv.ParseFloat(os.Args[3], 64)
	if err != nil {
		panic(err)
	}
	for _, id := range os.Args[4:] {
		client, err := doorman.NewWithID(address, id,
			doorman.MinimumRefreshInterval(time.Second), doorman.DialOpts(grpc.WithInsecure()))
		if err != nil {
			panic(err)
		}
		leased, err := client.Resource(resource, wants)
		if err != nil {
			panic(err)
		}
		go func(id string) {
			for capacity := range leased.Capacity() {
				fmt.Println(id, capacity)
			}
		}(id)
	}
	io.Copy(io.Discard, os.Stdin)
}
