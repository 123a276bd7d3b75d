# shellcheck shell=bash
# MySQL itself on Debian, beside the MariaDB that Debian ships in its place. Sourced by scripts/services.
#
# Debian has MySQL in its suite "sid" only, and its packages can be neither mixed into a stable system nor installed
# beside MariaDB. So apt resolves and verifies them as for an empty system, and they are unpacked into a cache folder
# with every library they need, libc too, and run by their own dynamic loader. Nothing is installed, no root is needed.

mysql_home=$cache/mysql
mysql_log=$mysql_home/mysqld.log

# mysql_start makes MySQL answer, from the cache where that is possible.
mysql_start() {
	mkdir -p "$mysql_home" && rm -f "$mysql_home/unavailable"
	mysql_fetch || return
	mysql_initialize || return
	mysql_run && return
	# A data folder that an older version or a full disk left unusable is no loss: it holds tests' rows only.
	mysql_pid >/dev/null && return 1
	rm -rf "$mysql_home/data"
	mysql_initialize && mysql_run
}

# mysql_fetch unpacks the packages into $mysql_home/root, complete or not at all.
mysql_fetch() {
	[[ -x $mysql_home/root/usr/sbin/mysqld ]] && return
	local new=$mysql_home/new deb
	rm -rf "$new" && mkdir -p "$new/root" || return
	progress mysql 'downloading it (60 MB) ...'
	retry 4 mysql_download "$new" || { mysql_fails "the download failed, see $(log_of mysql)" && return 1; }
	for deb in "$new"/cache/archives/*.deb; do
		dpkg-deb -x "$deb" "$new/root" || { mysql_fails "cannot unpack $deb" && return 1; }
	done
	rm -rf "$mysql_home/root" && mv "$new/root" "$mysql_home/root" && rm -rf "$new"
}

# mysql_download <folder>: apt's own resolver, verification, mirror and proxy settings, but state and cache of ours.
mysql_download() {
	local mirror keyring signed_by=''
	mirror=$(debian_mirror) || return
	for keyring in /usr/share/keyrings/debian-archive-keyring.{gpg,pgp}; do
		[[ ! -e $keyring ]] || signed_by="[signed-by=$keyring] "
	done
	mkdir -p "$1/state/lists/partial" "$1/cache/archives/partial" && : >"$1/status" || return
	echo "deb $signed_by$mirror sid main" >"$1/sources.list"
	local apt=(apt-get -q -y -o "Dir::State=$1/state" -o "Dir::State::status=$1/status" -o "Dir::Cache=$1/cache"
		-o "Dir::Etc::SourceList=$1/sources.list" -o Dir::Etc::SourceParts=/dev/null
		-o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
		-o Acquire::Retries=3 -o Acquire::Languages=none -o "APT::Sandbox::User=$(id -un)")
	"${apt[@]}" update && "${apt[@]}" install --download-only --no-install-recommends mysql-server-core
} >>"$(log_of mysql)" 2>&1

# debian_mirror prints where this machine gets Debian's main archive from; apt has read every format of its sources.
debian_mirror() {
	local mirror
	# shellcheck disable=SC2016 # $(REPO_URI) is apt's
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' | grep -v security)
	mirror=${mirror%%$'\n'*}
	[[ -n $mirror ]] || { echo 'no Debian source with the component main in apt' >&2 && return 1; }
	echo "$mirror"
}

mysql_initialize() {
	[[ -d $mysql_home/data ]] && return
	rm -rf "$mysql_home/data.new"
	mysqld_command "$mysql_home/data.new"
	"${mysqld[@]}" --initialize-insecure >>"$mysql_log" 2>&1 ||
		{ mysql_fails "its data folder cannot be initialised, see $mysql_log" && return 1; }
	mv "$mysql_home/data.new" "$mysql_home/data"
}

# mysql_run starts the server for longer than this script lives, and waits until it answers or dies.
mysql_run() {
	local pid
	pid=$(mysql_pid) || {
		echo 'CREATE DATABASE IF NOT EXISTS test;' >"$mysql_home/init.sql"
		mysqld_command "$mysql_home/data"
		detach "$mysql_log" "${mysqld[@]}" --init-file="$mysql_home/init.sql"
		pid=$detached
	}
	wait_for mysql 90 "$pid" || { mysql_fails "it does not start, see $mysql_log" && return 1; }
}

# mysql_pid prints the process of our server, if there is one. A pid file alone may be older than a crash.
mysql_pid() {
	local pid
	pid=$(cat "$mysql_home/mysqld.pid" 2>/dev/null) &&
		[[ $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") == *"$mysql_home"* ]] && echo "$pid"
}

# mysqld_command <data folder> sets the array mysqld: loader and libraries are those unpacked with it.
mysqld_command() {
	local root=$mysql_home/root loader libc
	loader=$(find "$root/usr" -name 'ld-linux*.so.*' -print -quit)
	libc=$(find "$root/usr/lib" -name libc.so.6 -print -quit)
	mysqld=("$loader" --library-path "${libc%/*}" "$root/usr/sbin/mysqld" --no-defaults --user="$(id -un)"
		--basedir="$root/usr" --lc-messages-dir="$root/usr/share/mysql" --plugin-dir="$root/usr/lib/mysql/plugin"
		--datadir="$1" --pid-file="$mysql_home/mysqld.pid" --socket="$mysql_home/mysqld.sock" --mysqlx=OFF
		--bind-address=127.0.0.1 --port=3307 --max-connections=500 --secure-file-priv=NULL --skip-log-bin)
}

# mysql_fails <reason> keeps it for mysql_failure, so that a later `scripts/services env` can tell the tests.
mysql_fails() { echo "$1" >"$mysql_home/unavailable"; }
mysql_failure() { cat "$mysql_home/unavailable" 2>/dev/null; }
