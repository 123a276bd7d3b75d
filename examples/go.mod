module github.com/watermill-inbox/inbox/examples

go 1.24.0

require github.com/watermill-inbox/inbox v0.0.0

replace github.com/watermill-inbox/inbox => ../
