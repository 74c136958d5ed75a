#!/usr/bin/env bash
# Real servers for tests and benchmarks, on a bare Debian 12 machine, as root.
#
#   scripts/stack.sh up      install what is missing, start every server, print what answered
#   scripts/stack.sh env     print the exports that point tests at these servers
#   scripts/stack.sh status  say which servers answer; exit 1 when one does not
#   scripts/stack.sh down    stop the servers that `up` started (their data stays)
#   scripts/stack.sh run CMD...  run a command with the exports, on these servers or on those that
#                            GATEWAY_TEST_MYSQL and GATEWAY_TEST_MONGO name already
#
# Every step is idempotent and safe to interrupt. Three MySQL nodes and DocumentDB (a MongoDB-protocol
# server: PostgreSQL with the documentdb extension, behind FerretDB) come from Debian unstable in a chroot;
# MariaDB is the host's own. Mounts live in the servers' private mount namespaces, so none is left behind.
#
#   KEYRANGE_STACK_DIR   where everything is kept (default /var/cache/keyrange-stack, about 2.5 GB)
#   KEYRANGE_STACK_PORT  first of six ports (default 33101), all on 127.0.0.1
set -euo pipefail

dir=${KEYRANGE_STACK_DIR:-/var/cache/keyrange-stack}
port=${KEYRANGE_STACK_PORT:-33101}
root=$dir/sid
mysql_ports=("$port" "$((port + 1))" "$((port + 2))")
mariadb_port=$((port + 3))
postgres_port=$((port + 4))
mongo_port=$((port + 5))
ferretdb_version=v2.7.0
unix_path_limit=60 # a UNIX socket path has 107 bytes at most; names are appended

say() { printf 'stack: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# ---- installing -------------------------------------------------------------

# in_sid runs a command inside the chroot, in a private mount namespace that ends with it.
in_sid() {
  unshare --mount --propagation private bash -c '
    set -e; root=$1; shift
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    exec chroot "$root" "$@"' in_sid "$root" "$@"
}

apt_updated=
apt_install() {
  export DEBIAN_FRONTEND=noninteractive
  if [ -z "$apt_updated" ]; then apt-get update -qq >>"$dir/install.log" 2>&1 || true; apt_updated=1; fi
  apt-get install -y -qq --no-install-recommends "$@" >>"$dir/install.log" 2>&1
}

install_sid() {
  [ -e "$root/.installed" ] && return
  if [ ! -e "$root/.bootstrapped" ]; then
    say "bootstrapping Debian unstable (about a minute) ..."
    command -v debootstrap >/dev/null || apt_install debootstrap || die "debootstrap cannot be installed, see $dir/install.log"
    rm -rf --one-file-system "$root"
    debootstrap --variant=minbase sid "$root" >>"$dir/install.log" 2>&1 || die "debootstrap failed, see $dir/install.log"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod +x "$root/usr/sbin/policy-rc.d"
    touch "$root/.bootstrapped"
  fi
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  say "installing MySQL and DocumentDB in it (about two minutes) ..."
  in_sid bash -c '
    export DEBIAN_FRONTEND=noninteractive
    # A mirror may serve a frozen day of unstable, whose index has expired: good enough for test servers.
    echo "Acquire::Check-Valid-Until false;" >/etc/apt/apt.conf.d/frozen-mirror
    dpkg --configure -a; apt-get update -qq || exit 1
    documentdb=$(apt-cache pkgnames | grep -E "^postgresql-[0-9]+-documentdb$" | sort -V | tail -n 1)
    apt-get install -y -qq --no-install-recommends $documentdb || echo "no DocumentDB: $?"
    apt-get install -y -qq --no-install-recommends mysql-server-core || echo "no MySQL: $?"
    id mysql >/dev/null 2>&1 || useradd -r mysql
    mkdir -p /var/lib/mysql-files /run/stack && chmod 1777 /run/stack' >>"$dir/install.log" 2>&1 ||
    die "packages cannot be installed in the chroot, see $dir/install.log"
  touch "$root/.installed"
}

has_mysql() { [ -x "$root/usr/sbin/mysqld" ]; }

install_mariadb() {
  # Not mariadb-server: it would start a service of its own. my_print_defaults is part of the client.
  command -v mariadbd >/dev/null && command -v my_print_defaults >/dev/null && return
  say "installing MariaDB ..."
  apt_install mariadb-server-core mariadb-client || die "mariadb-server-core cannot be installed, see $dir/install.log"
}

install_ferretdb() {
  [ -x "$dir/bin/ferretdb" ] && return
  say "building FerretDB $ferretdb_version (about 90 s) ..."
  GOBIN=$dir/bin GOFLAGS=-buildvcs=false go install "github.com/FerretDB/FerretDB/v2/cmd/ferretdb@$ferretdb_version" >>"$dir/install.log" 2>&1 ||
    die "FerretDB does not build, see $dir/install.log"
}

# ---- starting ---------------------------------------------------------------

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# greeting prints the version that a MySQL or MariaDB server announces when a client connects.
greeting() {
  timeout 2 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$1"; head -c 64 <&3' greeting "$1" 2>/dev/null |
    tr -c '[:print:]' '\n' | grep -aoE '[0-9]+\.[0-9]+\.[0-9]+(-[0-9.]+-MariaDB|-MariaDB)?' | head -n 1 | sed 's/^5\.5\.5-//' || true
}

# wait_for polls a check for up to a minute and shows the tail of the log when it stays false.
wait_for() {
  local what=$1 log=$2; shift 2
  for _ in $(seq 300); do
    "$@" && return
    sleep 0.2
  done
  tail -n 5 "$log" >&2 || true
  die "$what does not answer, see $log"
}

answers_sql() { [ -n "$(greeting "$1")" ]; }

# start runs a server in the background, detached, and keeps its process id.
start() {
  local name=$1; shift
  setsid "$@" >>"$dir/log/$name.log" 2>&1 </dev/null 9>&- &
  echo $! >"$dir/run/$name.pid"
}

start_mysql() {
  local i=$1 p=${mysql_ports[$1]} name=mysql-$(($1 + 1))
  answers_sql "$p" && return
  if [ ! -e "$root/var/lib/$name/.ready" ]; then
    say "creating the data folder of $name ..."
    rm -rf --one-file-system "$root/var/lib/$name"
    in_sid mysqld --no-defaults --user=mysql --initialize-insecure --datadir="/var/lib/$name" >>"$dir/log/$name.log" 2>&1 ||
      die "$name cannot be initialised, see $dir/log/$name.log"
    touch "$root/var/lib/$name/.ready"
  fi
  start "$name" "$in_sid_exec_script" mysqld --no-defaults --user=mysql --datadir="/var/lib/$name" --port="$p" \
    --bind-address=127.0.0.1 --socket="/run/stack/$name.sock" --pid-file="/run/stack/$name.pid" --mysqlx=OFF \
    --server-id="$((i + 1))" --max-connections=600 --binlog-expire-logs-seconds=3600
  wait_for "$name" "$dir/log/$name.log" answers_sql "$p"
}

start_mariadb() {
  local name=$1 p=$2
  answers_sql "$p" && return
  id mysql >/dev/null 2>&1 || useradd -r mysql
  if [ ! -e "$dir/data/$name/.ready" ]; then
    say "creating the data folder of $name ..."
    rm -rf --one-file-system "${dir:?}/data/$name"
    mkdir -p "$dir/data/$name" && chown mysql "$dir/data/$name"
    mariadb-install-db --no-defaults --user=mysql --datadir="$dir/data/$name" --auth-root-authentication-method=normal \
      >>"$dir/log/$name.log" 2>&1 || die "$name cannot be initialised, see $dir/log/$name.log"
    touch "$dir/data/$name/.ready"
  fi
  start "$name" mariadbd --no-defaults --user=mysql --datadir="$dir/data/$name" --port="$p" \
    --bind-address=127.0.0.1 --socket="$dir/run/$name.sock" --pid-file="$dir/run/$name.server.pid" --max-connections=600
  wait_for "$name" "$dir/log/$name.log" answers_sql "$p"
}

start_postgres() {
  listens "$postgres_port" && return
  local bin data=/var/lib/documentdb
  bin=$(cd "$root" && ls -d usr/lib/postgresql/*/bin | sort -V | tail -n 1)
  if [ ! -e "$root$data/.ready" ]; then
    say "creating the data folder of documentdb ..."
    rm -rf --one-file-system "$root$data"
    in_sid bash -c 'mkdir -p "$2" && chown postgres "$2" && setpriv --reuid=postgres --regid=postgres --init-groups "/$1/initdb" -D "$2" --auth=trust' \
      init "$bin" "$data" >>"$dir/log/documentdb.log" 2>&1 || die "PostgreSQL cannot be initialised, see $dir/log/documentdb.log"
    cat >>"$root$data/postgresql.conf" <<CONF
listen_addresses = '127.0.0.1'
unix_socket_directories = '/run/stack'
shared_preload_libraries = 'pg_cron, pg_documentdb_core, pg_documentdb'
cron.database_name = 'postgres'
max_connections = 300
CONF
    touch "$root$data/.ready"
  fi
  start documentdb "$in_sid_exec_script" setpriv --reuid=postgres --regid=postgres --init-groups "/$bin/postgres" -D "$data" -p "$postgres_port"
  wait_for documentdb "$dir/log/documentdb.log" listens "$postgres_port"
  wait_for "the documentdb extension" "$dir/log/documentdb.log" create_extension "$bin"
}

create_extension() {
  in_sid "/$1/psql" -q -h 127.0.0.1 -p "$postgres_port" -U postgres -c 'set client_min_messages = warning; create extension if not exists documentdb cascade' \
    >>"$dir/log/documentdb.log" 2>&1
}

start_ferretdb() {
  listens "$mongo_port" && return
  mkdir -p "$dir/data/ferretdb"
  start ferretdb "$dir/bin/ferretdb" --listen-addr="127.0.0.1:$mongo_port" --no-auth --telemetry=disable --debug-addr=- \
    --postgresql-url="postgres://postgres@127.0.0.1:$postgres_port/postgres" --state-dir="$dir/data/ferretdb" --log-level=warn
  wait_for ferretdb "$dir/log/ferretdb.log" listens "$mongo_port"
}

# in_sid_exec_script is in_sid as a program that setsid can run.
in_sid_exec_script=$dir/run/in-sid
write_in_sid_exec() {
  printf '#!/usr/bin/env bash\nroot=%q\n%s\nin_sid "$@"\n' "$root" "$(declare -f in_sid)" >"$in_sid_exec_script"
  chmod +x "$in_sid_exec_script"
}

# ---- commands ---------------------------------------------------------------

up() {
  [ "$(id -u)" = 0 ] || die "needs root; set GATEWAY_TEST_MYSQL and GATEWAY_TEST_MONGO to use servers of your own"
  command -v go >/dev/null || die "needs Go to build FerretDB"
  mkdir -p "$dir"/{bin,log,run,data}
  chmod 755 "$dir" && chmod 1777 "$dir/run"
  [ ${#dir} -le $unix_path_limit ] || die "KEYRANGE_STACK_DIR is too long for UNIX sockets"
  exec 9>"$dir/lock"
  flock 9
  local ferretdb_build=
  install_ferretdb & ferretdb_build=$!
  install_sid
  install_mariadb
  write_in_sid_exec
  for i in "${!mysql_ports[@]}"; do
    if has_mysql; then
      start_mysql "$i"
    else
      say "MySQL cannot be installed from Debian unstable today: node $((i + 1)) is a MariaDB server instead"
      start_mariadb "mysql-$((i + 1))" "${mysql_ports[$i]}"
    fi
  done
  start_mariadb mariadb "$mariadb_port"
  ls "$root"/usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || die "DocumentDB cannot be installed from Debian unstable today: set GATEWAY_TEST_MONGO"
  start_postgres
  wait "$ferretdb_build" || die "FerretDB does not build, see $dir/install.log"
  start_ferretdb
  status
}

status() {
  local bad=0 v p
  for p in "${mysql_ports[@]}" "$mariadb_port"; do
    v=$(greeting "$p")
    if [ -n "$v" ]; then echo "127.0.0.1:$p  ${v}" | sed -E '/MariaDB/!s/  /  MySQL /; s/  ([0-9.]+)-MariaDB/  MariaDB \1/'; else echo "127.0.0.1:$p  no answer"; bad=1; fi
  done
  if listens "$mongo_port"; then echo "127.0.0.1:$mongo_port  FerretDB ${ferretdb_version#v} on DocumentDB (MongoDB protocol)"; else echo "127.0.0.1:$mongo_port  no answer"; bad=1; fi
  return $bad
}

print_env() {
  local urls="" p
  for p in "${mysql_ports[@]}" "$mariadb_port"; do urls+="mysql://root@127.0.0.1:$p/ "; done
  echo "export GATEWAY_TEST_MYSQL='${urls% }'"
  echo "export GATEWAY_TEST_MONGO='mongodb://127.0.0.1:$mongo_port/'"
  # For servers that a test starts for itself, to kill and to stop them.
  echo "export GATEWAY_TEST_MARIADBD='$(command -v mariadbd)'"
  echo "export GATEWAY_TEST_FERRETDB='$dir/bin/ferretdb'"
  echo "export GATEWAY_TEST_POSTGRES='postgres://postgres@127.0.0.1:$postgres_port/postgres'"
}

run() {
  if [ -z "${GATEWAY_TEST_MYSQL:-}" ] || [ -z "${GATEWAY_TEST_MONGO:-}" ]; then
    up
    eval "$(print_env)"
  fi
  exec 9>&-
  exec "$@"
}

# down stops only processes whose ids `up` has written; a session id equals the id of its first process.
down() {
  local f pid
  for f in "$dir"/run/{ferretdb,documentdb,mysql-1,mysql-2,mysql-3,mariadb}.pid; do
    [ -e "$f" ] || continue
    pid=$(cat "$f")
    # SIGINT is PostgreSQL's fast shutdown; the others take SIGTERM.
    case $f in *documentdb.pid) pkill -INT -o -s "$pid" postgres || true ;; *) pkill -TERM -s "$pid" || true ;; esac
    for _ in $(seq 150); do pgrep -s "$pid" >/dev/null || break; sleep 0.2; done
    pgrep -s "$pid" >/dev/null && say "$(basename "$f" .pid) does not stop, left running as $pid" || rm -f "$f"
  done
}

case ${1:-} in
  up) up ;;
  env) print_env ;;
  status) status ;;
  down) down ;;
  run) shift; run "$@" ;;
  *) sed -n '2,18s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
