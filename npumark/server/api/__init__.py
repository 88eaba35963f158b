"""The endpoints: what a request says is read here, what it means is decided elsewhere."""
