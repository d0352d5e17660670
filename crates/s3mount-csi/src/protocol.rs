//! The messages of the Container Storage Interface, version 1, as far as this driver reads and writes them. The numbers
//! are those of the interface's `csi.proto`; fields that are left out are skipped by protobuf.
//!
//! A field of a `oneof` is an optional field here, which is the same on the wire.

use std::collections::BTreeMap;

use prost::{Enumeration, Message};

/// A text for each name.
pub(crate) type Texts = BTreeMap<String, String>;

/// A message without fields, and any message of which no field is read.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Empty {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct PluginInfo {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) vendor_version: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct PluginCapabilities {
    #[prost(message, repeated, tag = "1")]
    pub(crate) capabilities: Vec<PluginCapability>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct PluginCapability {
    #[prost(message, optional, tag = "1")]
    pub(crate) service: Option<CapabilityKind>,
}

/// A capability that is one number: of a plugin's service, of a controller's call, or of a node's.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CapabilityKind {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
}

/// The plugin has a controller.
pub(crate) const CONTROLLER_SERVICE: i32 = 1;
/// The controller makes and deletes volumes.
pub(crate) const CREATE_DELETE_VOLUME: i32 = 1;
/// The node tells how full a volume is.
pub(crate) const GET_VOLUME_STATS: i32 = 2;
/// The node tells whether a volume works.
pub(crate) const VOLUME_CONDITION: i32 = 4;
/// The node gives the files of a volume to a group.
pub(crate) const VOLUME_MOUNT_GROUP: i32 = 6;

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Probed {
    #[prost(message, optional, tag = "1")]
    pub(crate) ready: Option<Flag>,
}

/// `google.protobuf.BoolValue`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Flag {
    #[prost(bool, tag = "1")]
    pub(crate) value: bool,
}

/// The capabilities of a controller, or of a node.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Capabilities {
    #[prost(message, repeated, tag = "1")]
    pub(crate) capabilities: Vec<Capability>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Capability {
    #[prost(message, optional, tag = "1")]
    pub(crate) rpc: Option<CapabilityKind>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CreateVolume {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) capacity_range: Option<CapacityRange>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) volume_capabilities: Vec<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub(crate) parameters: Texts,
    #[prost(btree_map = "string, string", tag = "5")]
    pub(crate) secrets: Texts,
    #[prost(message, optional, tag = "6")]
    pub(crate) volume_content_source: Option<Empty>,
    #[prost(btree_map = "string, string", tag = "8")]
    pub(crate) mutable_parameters: Texts,
}

/// How large a volume shall be, in bytes. Zero says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct CapacityRange {
    #[prost(int64, tag = "1")]
    pub(crate) required_bytes: i64,
    #[prost(int64, tag = "2")]
    pub(crate) limit_bytes: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct VolumeCapability {
    #[prost(message, optional, tag = "1")]
    pub(crate) block: Option<Empty>,
    #[prost(message, optional, tag = "2")]
    pub(crate) mount: Option<MountVolume>,
    #[prost(message, optional, tag = "3")]
    pub(crate) access_mode: Option<AccessMode>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct MountVolume {
    #[prost(string, repeated, tag = "2")]
    pub(crate) mount_flags: Vec<String>,
    /// The `fsGroup` of the pod.
    #[prost(string, tag = "3")]
    pub(crate) volume_mount_group: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct AccessMode {
    #[prost(enumeration = "Mode", tag = "1")]
    pub(crate) mode: i32,
}

/// Who may use a volume at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum Mode {
    Unknown = 0,
    SingleNodeWriter = 1,
    SingleNodeReaderOnly = 2,
    MultiNodeReaderOnly = 3,
    MultiNodeSingleWriter = 4,
    MultiNodeMultiWriter = 5,
    SingleNodeSingleWriter = 6,
    SingleNodeMultiWriter = 7,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CreatedVolume {
    #[prost(message, optional, tag = "1")]
    pub(crate) volume: Option<Volume>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Volume {
    #[prost(int64, tag = "1")]
    pub(crate) capacity_bytes: i64,
    #[prost(string, tag = "2")]
    pub(crate) volume_id: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(crate) volume_context: Texts,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DeleteVolume {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(crate) secrets: Texts,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ValidateVolumeCapabilities {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(crate) volume_context: Texts,
    #[prost(message, repeated, tag = "3")]
    pub(crate) volume_capabilities: Vec<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub(crate) parameters: Texts,
    #[prost(btree_map = "string, string", tag = "5")]
    pub(crate) secrets: Texts,
    #[prost(btree_map = "string, string", tag = "6")]
    pub(crate) mutable_parameters: Texts,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ValidatedVolumeCapabilities {
    #[prost(message, optional, tag = "1")]
    pub(crate) confirmed: Option<Confirmed>,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Confirmed {
    #[prost(btree_map = "string, string", tag = "1")]
    pub(crate) volume_context: Texts,
    #[prost(message, repeated, tag = "2")]
    pub(crate) volume_capabilities: Vec<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(crate) parameters: Texts,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct NodePublishVolume {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "4")]
    pub(crate) target_path: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) volume_capability: Option<VolumeCapability>,
    #[prost(bool, tag = "6")]
    pub(crate) readonly: bool,
    #[prost(btree_map = "string, string", tag = "7")]
    pub(crate) secrets: Texts,
    #[prost(btree_map = "string, string", tag = "8")]
    pub(crate) volume_context: Texts,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct NodeUnpublishVolume {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "2")]
    pub(crate) target_path: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct NodeGetVolumeStats {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "2")]
    pub(crate) volume_path: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct VolumeStats {
    #[prost(message, repeated, tag = "1")]
    pub(crate) usage: Vec<VolumeUsage>,
    #[prost(message, optional, tag = "2")]
    pub(crate) volume_condition: Option<VolumeCondition>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct VolumeUsage {
    #[prost(int64, tag = "1")]
    pub(crate) available: i64,
    #[prost(int64, tag = "2")]
    pub(crate) total: i64,
    #[prost(int64, tag = "3")]
    pub(crate) used: i64,
    #[prost(enumeration = "Unit", tag = "4")]
    pub(crate) unit: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum Unit {
    Unknown = 0,
    Bytes = 1,
    Inodes = 2,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct VolumeCondition {
    #[prost(bool, tag = "1")]
    pub(crate) abnormal: bool,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct NodeInfo {
    #[prost(string, tag = "1")]
    pub(crate) node_id: String,
}
