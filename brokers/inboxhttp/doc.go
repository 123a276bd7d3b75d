package inboxhttp
