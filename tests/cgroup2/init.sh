#!/bin/sh
# First process of the machine that boot.py starts: file systems, cgroup v2, and then $FOLDER/run.
# The root is the host's, read-only. REPOSITORY, FOLDER and SHOWN (more paths, by colons) stay visible below
# the empty /tmp, /run, …
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount --bind / /mnt
for place in /tmp /run /var/tmp; do mount -t tmpfs -o mode=1777 tmpfs "$place"; done
mkdir -p /dev/shm /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t devpts devpts /dev/pts
ln -s /proc/self/fd /dev/fd
IFS=:
for path in $REPOSITORY $FOLDER $SHOWN; do
	[ -e "$path" ] || [ ! -e "/mnt$path" ] || { mkdir -p "$path" && mount --bind "/mnt$path" "$path"; }
done
unset IFS
mount -t hostfs -o "$FOLDER" hostfs "$FOLDER"
umount -l /mnt
mount -t cgroup2 -o nsdelegate cgroup2 /sys/fs/cgroup
ip link set lo up
hostname cgroup2
ulimit -n 65536
cd "$REPOSITORY" || exit
sh "$FOLDER/run"
echo $? >"$FOLDER/status"
echo o >/proc/sysrq-trigger
sleep 60
