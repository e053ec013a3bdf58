package leasewayotel_test

import (
	"log"

	"go.opentelemetry.io/otel/attribute"

	leaseway "github.com/leaseway/leaseway/src/go"
	"github.com/leaseway/leaseway/src/go/leasewayotel"
)

func Example() {
	client, err := leaseway.Dial("127.0.0.1:5100")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	metrics, err := leasewayotel.Observe(client, leasewayotel.WithAttributes(attribute.String("service", "search")))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = metrics.Unregister() }()
}
