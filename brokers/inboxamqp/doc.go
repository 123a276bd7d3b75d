package inboxamqp
