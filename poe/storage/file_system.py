"""What the type of a file system, as `mount` names it, tells of who else may write to it."""

NETWORK_FILE_SYSTEMS = frozenset(
    {
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "fuse.ceph-fuse",
        "fuse.curlftpfs",
        "fuse.davfs2",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.goofys",
        "fuse.juicefs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "orangefs",
        "pvfs2",
        "smb3",
        "smbfs",
    }
)
"""Types that other hosts may write to at the same time, as `mount` names them.

FUSE as such is none of them: it holds local disks more often than not.
"""

HOST_FILE_SYSTEMS = frozenset({"9p", "fuse.vmhgfs-fuse", "prl_fs", "vboxsf", "virtiofs"})
"""Types that show a virtual machine, or a container in one, a folder of its own host.

Programs of the host, and of its other guests, may write there, too. Not so with overlay: its
upper folder is a local one.
"""
