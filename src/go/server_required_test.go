//go:build e2e

package leaseway_test

const binaryRequired = true
