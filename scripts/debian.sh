# shellcheck shell=bash
# Services from Debian's packages, with or without systemd. Sourced by scripts/services.
#
# These run as root, and only where nothing listened at the default address. The access rules that the tests need
# (no password, from 127.0.0.1 only) are therefore never put on a server that somebody else had running.

is_debian() { [[ -e /etc/debian_version ]] && command -v apt-get >/dev/null; }

# debian_start <name> installs and starts one service, or ends the script.
debian_start() {
	local program package
	case $1 in
	postgres) program=pg_ctlcluster package=postgresql ;;
	mariadb) program=mariadbd package=mariadb-server ;;
	*) program=$1-server package=$1-server ;;
	esac
	if ! command -v "$program" >/dev/null; then
		progress "$1" "installing Debian's $package ..."
		retry 3 apt_install "$package" >>"$(log_of "$1")" 2>&1 ||
			die "cannot install $package, see $(log_of "$1")"
	fi
	"debian_start_$1" >>"$(log_of "$1")" 2>&1 </dev/null || die "cannot start $1, see $(log_of "$1")"
}

# A UTF-8 locale, since PostgreSQL takes the encoding of its databases from the one it is installed under.
apt_install() {
	local apt=(env LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive apt-get -q -y
		-o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
	"${apt[@]}" update && "${apt[@]}" install --no-install-recommends "$@"
}

debian_start_postgres() {
	local rule='host all postgres 127.0.0.1/32 trust # tests of watermill-inbox' rules
	service postgresql start || return
	rules=$(as_postgres 'SHOW hba_file') || return
	grep -qxF "$rule" "$rules" || sed -i "1i $rule" "$rules" || return
	as_postgres 'SELECT pg_reload_conf()'
}

# as_postgres <query> goes through the socket, where Debian lets the system user in.
as_postgres() { runuser -u postgres -- psql -XAtq -c "$1"; }

debian_start_mariadb() {
	service mariadb start || return
	mariadb <<-'SQL'
		ALTER USER root@localhost IDENTIFIED VIA unix_socket OR mysql_native_password USING PASSWORD('');
		CREATE DATABASE IF NOT EXISTS test;
	SQL
}

# The three below may have been started by their installation, which then needs a moment until it answers.

# The node is named after localhost, since the name of a container may not resolve.
debian_start_rabbitmq() {
	wait_for rabbitmq 3 ||
		RABBITMQ_NODENAME=rabbit@localhost RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 rabbitmq-server -detached
}

debian_start_nats() {
	# Debian's unit, where systemd has just started it, runs without JetStream.
	[[ ! -d /run/systemd/system ]] || systemctl stop nats-server
	detach "$(log_of nats)" nats-server -a 127.0.0.1 -p 4222 -js -sd "$cache/nats"
}

debian_start_redis() {
	wait_for redis 3 ||
		redis-server --daemonize yes --bind 127.0.0.1 --port 6379 --save '' --appendonly no --dir "$cache"
}
