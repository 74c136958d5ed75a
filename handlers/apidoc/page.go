package apidoc

// Page is a stub.
func (d *Document) Page() ([]byte, string, error) { return nil, "", nil }
