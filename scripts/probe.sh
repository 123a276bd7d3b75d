# shellcheck shell=bash
# Asks a server over its own protocol whether the tests could use it. Sourced by scripts/services.
#
# An open port proves little: MariaDB may sit where MySQL is expected, a NATS may lack JetStream, a PostgreSQL may
# still be starting. Client programs are not there on a fresh machine, so bash itself speaks the few bytes needed.
#
# Each <service>_probe is silent and returns 0 when the service is usable; else it prints why it is not.

nothing_listens='nothing listens there' no_database='the database "test" is missing'

# host_port <address> <default port>: finds host and port in a URL, a go-sql-driver DSN or a plain host:port.
host_port() {
	local rest=${1#*://}
	rest=${rest##*@}
	rest=${rest#tcp(}
	rest=${rest%%[)/?,]*}
	[[ $rest =~ :[0-9]+$ ]] || rest=$rest:$2
	local host=${rest%:*}
	host=${host#[}
	echo "${host%]}" "${rest##*:}"
}

# talk <address> <default port> <request, as for printf %b> <text>: sends the request and prints the answer up to the
# text, or up to the end, or to 3 s of silence. NUL bytes come out as dots. Returns 1 when nothing listens.
talk() (
	LC_ALL=C
	read -r host port <<<"$(host_port "$1" "$2")"
	{ exec 3<>"/dev/tcp/$host/$port"; } 2>/dev/null || exit 1
	# A server that hangs up early must not end this subshell by SIGPIPE: its last words are the answer.
	trap '' PIPE
	printf '%b' "$3" >&3 2>/dev/null
	answer=
	while IFS= read -r -t 3 -d '' -n1 byte <&3; do
		answer+=${byte:-.}
		[[ $answer != *"$4"* ]] || break
	done 2>/dev/null
	printf '%s' "$answer"
)

# bytes <width> <big|little> <number>: the number as \xHH escapes.
bytes() {
	local out='' i byte
	for ((i = 0; i < $1; i++)); do
		printf -v byte '\\x%02x' $(($3 >> (8 * i) & 255))
		if [[ $2 == big ]]; then out=$byte$out; else out+=$byte; fi
	done
	printf '%s' "$out"
}

# postgres_ask <address> <database> <query>: start-up without a password, the query, good-bye; all in one write.
postgres_ask() {
	local start="user\\0postgres\\0database\\0$2\\0\\0" query="$3\\0"
	talk "$1" 5432 "$(bytes 4 big $((8 + 23 + ${#2} + 2)))\\0\\x03\\0\\0${start}Q$(
		bytes 4 big $((4 + ${#3} + 1)))${query}X$(bytes 4 big 4)" inbox_ok
}

postgres_probe() {
	local answer
	answer=$(postgres_ask "$1" test "SELECT 'inbox_'||'ok'") || { echo "$nothing_listens" && return 1; }
	case $answer in
	*inbox_ok*) ;;
	R* | E*) # It is PostgreSQL. With an address of the user's own, the password and the database are theirs too.
		[[ -n ${2-} ]] && return
		[[ $answer == *C3D000* ]] && echo "$no_database" && return 1
		[[ $answer == *C57P03* ]] && echo 'it is still starting' && return 1
		echo 'user "postgres" is not let in without a password'
		return 1
		;;
	*) echo 'what answers is not PostgreSQL' && return 1 ;;
	esac
}

postgres_create_database() { postgres_ask "$1" postgres 'CREATE DATABASE test' >/dev/null; }

# mysql_ask <address> <database> <query>: root without a password, the query, good-bye; all in one write.
# That works because the plugin "none" makes every server ask for its own plugin, to which the empty packet answers
# "no password", whatever the plugin is.
mysql_ask() {
	# protocol 4.1, long password, secure connection, plugin auth; with a database also "connect with db"
	local flags=$((${#2} > 0 ? 0x88209 : 0x88201)) user="root\\0\\0${2:+$2\\0}none\\0"
	local length=$((32 + 11 + (${#2} > 0 ? ${#2} + 1 : 0))) zeros='\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
	local hello="$(bytes 3 little $length)\\x01$(bytes 4 little $flags)\\0\\0\\0\\x01\\x2d$zeros$user"
	local no_password='\0\0\0\x03' query good_bye='\x01\0\0\0\x01'
	query="$(bytes 3 little $((${#3} + 1)))\\0\\x03$3"
	talk "$1" 3306 "$hello$no_password$query$good_bye" inbox_ok
}

# mysql_like_probe <mysql|mariadb> <address> [own]
mysql_like_probe() {
	local answer
	answer=$(mysql_ask "$2" test "SELECT CONCAT('inbox_','ok')") || { echo "$nothing_listens" && return 1; }
	case $1:$answer in
	mysql:*MariaDB*) echo 'MariaDB answers where MySQL is wanted' && return 1 ;;
	mariadb:*MariaDB* | mysql:*mysql_native_password* | mysql:*caching_sha2_password*) ;;
	*) echo "what answers is not $1" && return 1 ;;
	esac
	[[ $answer == *inbox_ok* || -n ${3-} ]] && return
	[[ $answer == *'Unknown database'* ]] && echo "$no_database" && return 1
	echo 'user "root" is not let in without a password'
	return 1
}

mysql_probe() { mysql_like_probe mysql "$@"; }
mariadb_probe() { mysql_like_probe mariadb "$@"; }
mysql_create_database() { mysql_ask "$1" '' 'CREATE DATABASE IF NOT EXISTS test' >/dev/null; }
mariadb_create_database() { mysql_create_database "$1"; }

# says <address> <default port> <request> <text> <reason>: for the brokers, where one text in the answer tells it all.
says() {
	local answer
	answer=$(talk "$1" "$2" "$3" "$4") || { echo "$nothing_listens" && return 1; }
	[[ $answer == *"$4"* ]] || { echo "$5" && return 1; }
}

# A protocol version that does not exist makes RabbitMQ name its own and hang up.
rabbitmq_probe() { says "$1" 5672 'AMQP\0\0\0\0' AMQP 'what answers is not RabbitMQ, or it is still starting'; }
nats_probe() { says "$1" 4222 '' '"jetstream":true' 'it is not NATS with JetStream (nats-server -js)'; }
redis_probe() {
	if [[ -n ${2-} ]]; then # may want a password: any answer of the protocol will do
		says "$1" 6379 'PING\r\nQUIT\r\n' $'\r\n' 'what answers is not Redis'
	else
		says "$1" 6379 'PING\r\nQUIT\r\n' +PONG 'what answers is not a Redis without a password'
	fi
}
# ApiVersions, version 0: every Kafka-compatible broker answers it, repeating the correlation id.
kafka_probe() { says "$1" 9092 '\0\0\0\x0a\0\x12\0\0inbx\xff\xff' inbx 'what answers is not Kafka'; }
