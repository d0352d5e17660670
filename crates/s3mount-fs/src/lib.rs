//! The read-only filesystem: inodes, handles, listings, attributes, errno
