package inboxnats
